"""What the shop remembers."""

from django.db import models


class Purchase(models.Model):
    """Something that was bought."""

    number = models.IntegerField(unique=True)
    is_confirmed = models.BooleanField(default=False)
    confirmed_by = models.CharField(max_length=200, default="")
