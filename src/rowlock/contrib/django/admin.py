"""A link to the dashboard in the admin, where `ROWLOCK["DASHBOARD_URL"]` says where that is."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

from django.conf import settings
from django.contrib import admin
from django.http import HttpResponseRedirect

from rowlock.contrib.django.models import Dashboard

if TYPE_CHECKING:
    _Admin: TypeAlias = admin.ModelAdmin[Dashboard]
else:
    _Admin = admin.ModelAdmin


class DashboardAdmin(_Admin):
    """Nothing to add or change here: its list is the dashboard."""

    def has_module_permission(self, request: Any) -> bool:
        """Whether the link is shown."""
        return _url() is not None and bool(super().has_module_permission(request))

    def has_add_permission(self, request: Any) -> bool:
        """Nothing can be added."""
        return False

    def changelist_view(self, request: Any, extra_context: Any = None) -> Any:
        """Go to the dashboard."""
        url = _url()
        if url is None or not self.has_view_permission(request):
            return super().changelist_view(request, extra_context)
        return HttpResponseRedirect(url)


def _url() -> str | None:
    raw = getattr(settings, "ROWLOCK", {})
    url: str | None = raw.get("DASHBOARD_URL") if isinstance(raw, dict) else None
    return url


admin.site.register(Dashboard, DashboardAdmin)
