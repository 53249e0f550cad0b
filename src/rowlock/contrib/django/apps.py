"""The Django app: `rowlock.contrib.django` in `INSTALLED_APPS`, with the label `rowlock`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django.apps import AppConfig

if TYPE_CHECKING:
    from rowlock.app import App
    from rowlock.testing.frameworks import WantedTask


class RowlockConfig(AppConfig):
    """Registers the system checks, and the project at `rowlock.testing`."""

    name = "rowlock.contrib.django"
    label = "rowlock"
    verbose_name: Any = "rowlock"

    def ready(self) -> None:
        """Register the checks. Django calls this once all models are loaded."""
        from django.core.checks import Tags, register

        from rowlock.contrib.django.settings import check_backends, check_settings
        from rowlock.testing.frameworks import FRAMEWORKS

        register(check_settings, Tags.compatibility)
        register(check_backends, Tags.compatibility)
        FRAMEWORKS.append(_DjangoFramework())


class _DjangoFramework:
    """What `rowlock.testing` asks. Nothing is imported before a test does."""

    def app(self) -> App | None:
        from rowlock.contrib.django.testing import tested_app

        return tested_app()

    def wanted(self, task: object) -> WantedTask | None:
        from rowlock.contrib.django.testing import wanted_task

        return wanted_task(task)
