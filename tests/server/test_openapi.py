"""The document: valid, complete, and nothing but what the table of routes says."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import jsonschema
import msgspec
import pytest
from openapi_spec_validator import validate

from rowlock.server.gate import Reach
from rowlock.server.openapi import document
from rowlock.server.problems import KINDS
from rowlock.server.routes import ROUTES
from rowlock.server.routing import AnyRoute

API = [route for route in ROUTES if not route.is_page]
DOCUMENT = document(ROUTES)


def operations() -> dict[str, dict[str, Any]]:
    return {
        operation["operationId"]: operation
        for methods in DOCUMENT["paths"].values()
        for operation in methods.values()
    }


def test_the_document_is_valid():
    """OpenAPI 3.1, by the validator of its own schema."""
    validate(DOCUMENT)

    assert DOCUMENT["openapi"].startswith("3.1")


def test_every_route_is_in_it():
    """With a name in camelCase, a summary, a tag that is described, and its scopes."""
    tags = {tag["name"] for tag in DOCUMENT["tags"]}

    assert {route.operation for route in API} == operations().keys()
    assert len(API) == len(operations())
    for route in API:
        operation = operations()[route.operation]
        assert re.fullmatch(r"[a-z]+([A-Z][a-z]+)+", route.operation)
        assert operation["summary"] and set(operation["tags"]) <= tags
        needed = [] if route.scopes is None else [{"bearer": sorted(route.scopes)}]
        assert needed == operation["security"]


def test_every_shape_has_a_name():
    """Objects are components, so that generated clients have names for them."""

    def inline(schema: Any) -> list[Any]:
        if isinstance(schema, list):
            return [found for each in schema for found in inline(each)]
        if not isinstance(schema, dict):
            return []
        own = [schema] if schema.get("properties") else []
        # An example may hold a schema: that of a payload.
        below = [each for name, each in schema.items() if name != "example"]
        return own + [found for each in below for found in inline(each)]

    for operation in operations().values():
        assert inline(operation.get("requestBody")) == [], operation["operationId"]
        assert inline(operation["responses"]) == [], operation["operationId"]
    for name, schema in DOCUMENT["components"]["schemas"].items():
        assert schema.get("description") or "enum" in schema, name


def test_generators_can_read_it():
    """What is left out, what is always there, and what is of any shape they take for what it is."""

    def walk(schema: Any) -> None:
        if isinstance(schema, list):
            for each in schema:
                walk(each)
        elif isinstance(schema, dict):
            if schema.get("type") == "object":
                assert schema.keys() & {"properties", "additionalProperties"}, schema
            assert schema.get("type") != "array" or "items" in schema, schema
            assert "default" not in schema, schema
            for each in schema.values():
                walk(each)

    schemas = DOCUMENT["components"]["schemas"]
    walk(schemas)
    assert schemas["NewJob"]["required"] == ["kind"]
    assert "By default 30" in schemas["LeaseRequest"]["properties"]["lease"]["description"]
    for name in ("Job", "Kind", "Reason", "System", "Worker"):
        assert set(schemas[name]["properties"]) == set(schemas[name]["required"])


def resolved(schema: Any) -> Any:
    """The schema with the components that it needs, as a document of its own."""
    return {**schema, "components": DOCUMENT["components"]}


@pytest.mark.parametrize("route", API, ids=lambda route: route.operation)
def test_examples_fit_their_schemas(route: AnyRoute):
    """Every body and every answer that is JSON has one, and the types take them too."""
    operation = operations()[route.operation]
    contents = [operation.get("requestBody", {}).get("content", {})]
    contents += [
        response.get("content", {})
        for response in operation["responses"].values()
        if "$ref" not in response
    ]
    for content in contents:
        if described := content.get("application/json"):
            jsonschema.validate(described["example"], resolved(described["schema"]))
    if route.example.body is not None:
        again = msgspec.json.decode(msgspec.json.encode(route.example.body), type=route.body)
        assert type(again) is route.body


def test_problems_have_examples_of_every_code():
    """Each code is shown where its status is described."""
    shown = {
        code
        for response in DOCUMENT["components"]["responses"].values()
        for code in response["content"]["application/problem+json"]["examples"]
    }
    # What comes before a route is found belongs to none.
    beyond = {"http_invalid", "head_too_large"}

    assert KINDS.keys() - beyond <= shown | {"unsupported_store"}


def test_operations_tell_what_can_go_wrong():
    """Every call with a body or a token has the problems of these."""
    for route in API:
        statuses = set(operations()[route.operation]["responses"])
        if route.scopes is not None:
            assert {"401", "403", "421", "429", "503"} <= statuses
        if route.body is not None:
            assert {"400", "408", "413", "415", "422"} <= statuses


def answers() -> Iterator[tuple[str, int, dict[str, Any]]]:
    for name, operation in operations().items():
        for status, response in operation["responses"].items():
            if "$ref" not in response:
                yield name, int(status), response


def test_headers_of_answers_are_said():
    """Where to look next, when to try again, how to log in, and what a path takes."""
    located = {
        (name, status) for name, status, each in answers() if "Location" in each.get("headers", {})
    }
    problems = {
        name: set(response["headers"])
        for name, response in DOCUMENT["components"]["responses"].items()
        if "headers" in response
    }

    assert located == {
        ("createJob", 200),
        ("createJob", 201),
        ("createBulk", 202),
        ("createWorkflow", 200),
        ("createWorkflow", 201),
        ("runJobAgain", 201),
    }
    assert problems == {
        "Problem401": {"WWW-Authenticate"},
        "Problem405": {"Allow"},
        "Problem429": {"Retry-After"},
        "Problem503": {"Retry-After"},
    }


def test_links_lead_to_calls_with_their_parameters():
    """What an answer names can be used in the next call."""
    linked = set()
    for name, _, response in answers():
        for link in response.get("links", {}).values():
            target = operations()[link["operationId"]]
            known = {each["name"] for each in target["parameters"]}
            assert link.get("parameters", {}).keys() <= known
            assert "requestBody" in target or "requestBody" not in link
            linked.add((name, link["operationId"]))

    jobs = {"getJob", "explainJob", "getRelatedJobs", "getJobLog"}
    jobs |= {"cancelJob", "retryJob", "deleteJob"}
    assert {("createJob", each) for each in jobs} <= linked
    assert {
        ("createLeases", "settleLeases"),
        ("createLeases", "extendLeases"),
        ("createBulk", "getBulk"),
        ("createToken", "deleteToken"),
        ("listSchedules", "runSchedule"),
        ("listSchedules", "pauseSchedule"),
        ("listSchedules", "resumeSchedule"),
        ("runSchedule", "getJob"),
    } <= linked


def test_calls_that_span_all_tenants_say_so():
    """For readers and for programs."""
    for route in API:
        operation = operations()[route.operation]
        spans_all = route.reach is Reach.SYSTEM

        assert operation.get("x-rowlock-reach") == ("system" if spans_all else None)
        assert spans_all is ("spans all tenants" in operation["description"])


@pytest.mark.parametrize(
    ("kind", "value", "fits"),
    [
        ("NewJob", {"kind": "k", "delay": 1}, True),
        ("NewJob", {"kind": "k", "delay": None, "run_at": "2026-05-01T12:00:00Z"}, True),
        ("NewJob", {"kind": "k", "delay": 1, "run_at": "2026-05-01T12:00:00Z"}, False),
        ("NewBulk", {"action": "cancel"}, False),
        ("NewBulk", {"action": "cancel", "preview": True}, True),
        ("NewBulk", {"action": "cancel", "expected": 3}, True),
        ("NewBulk", {"action": "cancel", "expected": None}, False),
        ("NewBulk", {"action": "delete", "expected": 3}, False),
        ("NewBulk", {"action": "delete", "filter": {"state": "dead"}, "expected": 3}, True),
        ("NewBulk", {"action": "delete", "filter": {"state": "running"}, "expected": 3}, False),
        ("NewBulk", {"action": "retry", "filter": {"state": "ready"}, "expected": 3}, False),
        ("NewBulk", {"action": "retry", "filter": {"state": None}, "expected": 3}, True),
    ],
)
def test_rules_across_fields_are_in_the_schema(api, kind, value, fits):
    """A client that checks its bodies finds what the server would refuse."""
    path = {"NewJob": "/v1/jobs", "NewBulk": "/v1/bulk"}[kind]
    answer = api("admin").post(path, json=value)
    schema = resolved({"$ref": f"#/components/schemas/{kind}"})

    assert jsonschema.Draft202012Validator(schema).is_valid(value) is fits
    assert (answer.status_code != 422) is fits, answer.text


def test_the_document_is_served(api):
    """To those with any token, below the address that they use."""
    served = api("work").get("/openapi.json")

    assert served.json() == DOCUMENT
    assert api.client().get("/openapi.json").status_code == 401
    assert api.client().get("/docs").status_code == 200
