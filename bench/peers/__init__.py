# SPDX-License-Identifier: Apache-2.0
"""Programs that run in the environments of peers; see `bench.peer`. Ours is not installed there."""
