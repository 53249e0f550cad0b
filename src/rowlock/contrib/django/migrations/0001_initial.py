"""rowlock's tables, and the permissions for the dashboard and the jobs in the admin."""

from __future__ import annotations

from collections.abc import Sequence

from django.db import migrations, models
from django.db.migrations.operations.base import Operation

from rowlock.contrib.django.operations import RowlockSchema


class Migration(migrations.Migration):
    """Reversing it removes the tables, and with them all jobs."""

    initial: bool | None = True
    dependencies: Sequence[tuple[str, str]] = ()
    operations: Sequence[Operation] = (
        RowlockSchema(newest=1),
        migrations.CreateModel(
            name="Job",
            fields=[("id", models.AutoField(primary_key=True, serialize=False))],
            options={
                "verbose_name": "job",
                "verbose_name_plural": "jobs",
                "default_permissions": (),
                "managed": False,
            },
        ),
        migrations.CreateModel(
            name="Dashboard",
            fields=[("id", models.AutoField(primary_key=True, serialize=False))],
            options={
                "verbose_name": "dashboard",
                "verbose_name_plural": "dashboard",
                "default_permissions": ("view", "change"),
                "managed": False,
            },
        ),
    )
