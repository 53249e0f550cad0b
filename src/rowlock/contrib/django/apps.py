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
        from django.db.models.signals import post_migrate

        from rowlock.contrib.django.settings import check_backends, check_settings
        from rowlock.testing.frameworks import FRAMEWORKS

        register(check_settings, Tags.compatibility)
        register(check_backends, Tags.compatibility)
        post_migrate.connect(_create_tables, sender=self)
        FRAMEWORKS.append(_DjangoFramework())


def _create_tables(*, using: str, **_: Any) -> None:
    """Create the tables where tests do without migrations, as pytest-django's `--no-migrations`."""
    from django.db.migrations.loader import MigrationLoader

    from rowlock.contrib.django.project import project_app

    module, _is_explicit = MigrationLoader.migrations_module(RowlockConfig.label)
    if module is None and using == project_app().settings.database:
        project_app().migrate()


class _DjangoFramework:
    """What `rowlock.testing` asks. Nothing is imported before a test does."""

    def app(self) -> App | None:
        from rowlock.contrib.django.testing import tested_app

        return tested_app()

    def wanted(self, task: object) -> WantedTask | None:
        from rowlock.contrib.django.testing import wanted_task

        return wanted_task(task)
