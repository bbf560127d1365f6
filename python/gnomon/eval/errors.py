# SPDX-License-Identifier: Apache-2.0
"""The error a command turns into one line on stderr and exit code 2."""


class UsageError(Exception):
    """Wrong use or unreadable input. The message names what was expected and what was got."""
