# SPDX-License-Identifier: Apache-2.0
"""A small, real Host Agent: a task runner with tools and a model, recorded step by step.

Start reading at `runner`; the handful of lines there that touch the tracer are all the
instrumentation there is.
"""
