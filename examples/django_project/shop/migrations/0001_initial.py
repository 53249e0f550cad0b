"""The first."""

from django.db import migrations, models


class Migration(migrations.Migration):
    """Purchases."""

    initial = True
    dependencies = []  # noqa: RUF012  # as Django writes it
    operations = [  # noqa: RUF012  # as Django writes it
        migrations.CreateModel(
            name="Purchase",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                ("number", models.IntegerField(unique=True)),
                ("is_confirmed", models.BooleanField(default=False)),
                ("confirmed_by", models.CharField(default="", max_length=200)),
            ],
        ),
    ]
