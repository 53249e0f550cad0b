"""The Django app: `rowlock.contrib.django` in `INSTALLED_APPS`, with the label `rowlock`."""

from __future__ import annotations

from typing import Any

from django.apps import AppConfig


class RowlockConfig(AppConfig):
    """Registers the system checks."""

    name = "rowlock.contrib.django"
    label = "rowlock"
    verbose_name: Any = "rowlock"

    def ready(self) -> None:
        """Register the checks. Django calls this once all models are loaded."""
        from django.core.checks import Tags, register

        from rowlock.contrib.django.settings import check_settings

        register(check_settings, Tags.compatibility)
