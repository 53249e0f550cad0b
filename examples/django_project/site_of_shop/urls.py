"""Addresses of the shop."""

from django.contrib import admin
from django.urls import path
from shop import views

urlpatterns = [
    path("admin/", admin.site.urls),
    path("buy/<int:number>", views.buy),
    path("look/<str:result_id>", views.look),
]
