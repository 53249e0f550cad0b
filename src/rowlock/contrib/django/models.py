"""The model without a table for the admin's link to the dashboard and its permission."""

from __future__ import annotations

from django.db import models


class Dashboard(models.Model):
    """The dashboard in the admin. Its permission is `rowlock.view_dashboard`."""

    class Meta:
        """Django's options."""

        managed = False
        default_permissions: tuple[str, ...] = ("view",)
        verbose_name = "dashboard"
        verbose_name_plural = "dashboard"
