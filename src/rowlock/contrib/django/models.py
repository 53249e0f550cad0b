"""No tables: what the admin links the dashboard by, and the right to see it."""

from __future__ import annotations

from django.db import models


class Dashboard(models.Model):
    """Stands for the dashboard in the admin. Its right is `rowlock.view_dashboard`."""

    class Meta:
        """Django's."""

        managed = False
        default_permissions: tuple[str, ...] = ("view",)
        verbose_name = "dashboard"
        verbose_name_plural = "dashboard"
