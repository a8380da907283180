# SPDX-License-Identifier: Apache-2.0
"""The exceptions a user of this library can meet.

::

    TaskHistoryError                 something about a history; the message says what to do
    ├── SettingsError                a setting has a value that makes no sense
    ├── HistoryRefused               a history exists but must not be used: another owner's,
    │   │                            another application's, another history's artifact folder
    │   └── SchemaTooNew             written by a newer version than this one can handle
    ├── HistoryNotFound              there is no history where it was looked for
    └── TaskNotFound (LookupError)   no task, or more than one, by that id

Recording never raises any of these into the agent: they come from opening a history, from
settings and from reading.
"""

from __future__ import annotations


class TaskHistoryError(Exception):
    """Something is wrong with a history or its settings; the message says what to do about it."""


class SettingsError(TaskHistoryError):
    """A setting (argument or environment variable) has a value that cannot be used."""


class HistoryRefused(TaskHistoryError):
    """The place holds something that this process must not write to; nothing was changed."""


class SchemaTooNew(HistoryRefused):
    """The history was written by a newer version of this library."""


class HistoryNotFound(TaskHistoryError):
    """There is no history in the place that was named."""


class TaskNotFound(TaskHistoryError, LookupError):
    """No task has this id, or several have it as a prefix."""
