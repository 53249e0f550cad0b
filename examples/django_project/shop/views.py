"""Pages of the shop."""

from django.db import transaction
from django.http import JsonResponse

from shop.models import Purchase
from shop.tasks import confirm


@transaction.atomic
def buy(request, number):
    """Buy something: the purchase and the job that confirms it stand or fall together."""
    Purchase.objects.create(number=number)
    result = confirm.enqueue(number)
    if "fail" in request.GET:
        raise RuntimeError("the card was refused")
    return JsonResponse({"result": result.id})


def look(request, result_id):
    """What became of it."""
    result = confirm.get_result(result_id)
    return JsonResponse({"status": result.status, "attempts": result.attempts})
