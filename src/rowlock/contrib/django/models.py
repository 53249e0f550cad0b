"""The model without a table for the admin's link to the dashboard and its permission."""

from __future__ import annotations

from django.db import models


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
