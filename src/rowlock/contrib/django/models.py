"""Models without a table, for the admin: the jobs, and the dashboard with its permissions."""

from __future__ import annotations

from django.db import models


class Job(models.Model):
    """The jobs in the admin. The permissions of the dashboard count for them, too."""

    class Meta:
        """Django's options."""

        managed = False
        default_permissions: tuple[str, ...] = ()
        verbose_name = "job"
        verbose_name_plural = "jobs"


class Dashboard(models.Model):
    """The dashboard in the admin.

    `rowlock.view_dashboard` allows users to look, `rowlock.change_dashboard` to act as well.
    """

    class Meta:
        """Django's options."""

        managed = False
        default_permissions: tuple[str, ...] = ("view", "change")
        verbose_name = "dashboard"
        verbose_name_plural = "dashboard"
