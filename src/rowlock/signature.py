"""The payload of a task, as its function's signature defines it. Pure, without any store.

1. `arguments` accepts every text that `encode` and `validate` return: the text itself is decoded by
   type before it is returned.
2. A `PayloadInvalid` names every invalid field. msgspec stops at the first one, so the fast path
   only decides yes or no, and the slow path checks field by field, into lists and objects.
3. Type hints are resolved at first use, so that a task may name types that are defined below it.
"""

from __future__ import annotations

import functools
import inspect
import sys
import types
import typing
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final
from uuid import UUID

import msgspec

from rowlock import codec, misfits
from rowlock.errors import FieldError, OptionInvalid, PayloadInvalid
from rowlock.inputs import Input
from rowlock.suggest import FOREIGN, nearest

if sys.version_info >= (3, 14):
    import annotationlib


class PayloadSchema:
    """The schema of a task's payload. It converts between calls, text and arguments."""

    def __init__(
        self,
        function: Callable[..., object],
        kind: str,
        context_type: type,
        *,
        options: Collection[str] = (),
    ) -> None:
        """Read the signature. Hints are resolved later.

        Args:
            context_type: The worker passes parameters that are annotated with exactly this type.
            options: The options of a job, which many pass among the arguments by mistake.

        Raises:
            OptionInvalid: the function takes `*args` or positional-only parameters.
        """
        self.function = function
        self.kind = kind
        self._context_type = context_type
        self._options = options
        self._parameters = _parameters_of(function)
        for parameter in self._parameters:
            if advice := _UNNAMED.get(parameter.kind):
                raise self._unusable(f"parameter {str(parameter).split(':')[0]!r} {advice}")

    @property
    def context_parameter(self) -> str | None:
        """The name of the parameter that gets the running job's context, if there is one."""
        return self._shape.context_parameter

    @property
    def parameters(self) -> list[str]:
        """The names of the parameters that a payload has: not the context, and no `**fields`.

        A hint that can't be resolved yet, because its type is defined below, is not the context's.
        """
        return [
            parameter.name
            for parameter in self._parameters
            if parameter.kind is not parameter.VAR_KEYWORD and not self._seems_context(parameter)
        ]

    @property
    def takes_extra(self) -> bool:
        """Whether the function has `**fields`, and so payloads may have other names, too."""
        return any(each.kind is each.VAR_KEYWORD for each in self._parameters)

    def _seems_context(self, parameter: inspect.Parameter) -> bool:
        if parameter.annotation is parameter.empty:
            return False
        try:
            return self._is_context(self._resolved(parameter, _annotated(self.function)))
        except OptionInvalid:
            return False

    def value_of(self, payload: Mapping[str, Any], name: str) -> object:
        """Return the value of a parameter in a payload that fits, or its default, as JSON has it.

        A UUID comes as a UUID: as a text it may be spelt in several ways.

        Raises:
            Exception: Anything, if the value does not fit.
        """
        if name not in payload:
            return self._plain_defaults.get(name)
        value: object = payload[name]
        typed = misfits.converted(value, self._shape.hints[name])
        return typed if isinstance(typed, UUID) else value

    def with_defaults(self, payload: Mapping[str, Any]) -> dict[str, Any]:
        """Return a payload with the defaults of the parameters that it lacks, as JSON has them."""
        return {**self._plain_defaults, **payload}

    @functools.cached_property
    def _plain_defaults(self) -> dict[str, Any]:
        plain: dict[str, Any] = {}
        for name, default in self._shape.defaults.items():
            # One that is no JSON can't be in a payload either.
            with suppress(Exception):
                plain[name] = misfits.plain(default)
        return plain

    def encode(
        self,
        args: tuple[object, ...],
        kwargs: dict[str, Any],
        inputs: dict[str, Input] | None = None,
    ) -> str:
        """Return the payload text of a call. Defaults are not written.

        Args:
            inputs: Gets the arguments that stand for results of other jobs. None: there must be
                none.

        Raises:
            PayloadInvalid: naming every missing, unexpected, ill-typed or unstorable field.
        """
        fields, errors = kwargs, list[FieldError]()
        if args:
            fields, errors = self._bind(args, kwargs)
        else:
            text = self._shape.encoded_flat(kwargs)
            if text is not None:
                return text
        if inputs is not None:
            inputs.update(_inputs_in(fields))
            if inputs:
                return self._encode_rest(fields, errors, inputs)
        return self._encode(fields, errors)

    def _encode_rest(
        self,
        fields: dict[str, Any],
        errors: typing.Sequence[FieldError],
        inputs: Mapping[str, Input],
    ) -> str:
        """Return the payload text without the arguments that are known later."""
        rest = {name: value for name, value in fields.items() if name not in inputs}
        found = list(errors)
        text = "{}"
        try:
            text, _ = codec.encode_fields(self.kind, rest)
        except PayloadInvalid as error:
            found += error.errors
        named = {problem.field for problem in found}
        for problem in self._field_errors(rest, is_storable=not named):
            if problem.field not in named and problem.field not in inputs:
                found.append(problem)
        unknown = {} if self._shape.takes_extra else set(inputs) - set(self._shape.hints)
        found += [FieldError(name, self._unexpected(name)) for name in sorted(unknown)]
        if found:
            raise PayloadInvalid(self.kind, found)
        return text

    def hint_of(self, name: str) -> Any:
        """Return the type of a parameter. Any, if it has none."""
        shape = self._shape
        return shape.hints.get(name, shape.extra_hint if shape.takes_extra else Any)

    @functools.cached_property
    def result_hint(self) -> Any:
        """The type of the function's result. Any, if it has none or it can't be resolved."""
        holder = _annotated(self.function)
        annotation = getattr(holder, "__annotations__", {}).get("return", Any)
        carrier = types.FunctionType(_nothing.__code__, getattr(holder, "__globals__", {}))
        carrier.__annotations__ = {"hint": annotation}
        try:
            return typing.get_type_hints(carrier)["hint"]
        except Exception:  # noqa: BLE001  # a type that only type checkers know decides nothing
            return Any

    def validate(self, payload: Mapping[str, object]) -> str:
        """Return the payload text of a plain mapping, checked as by `encode`.

        Raises:
            PayloadInvalid: naming every missing, unexpected, ill-typed or unstorable field.
        """
        return self._encode(codec.fields_of(self.kind, payload), ())

    def arguments(self, payload_text: str) -> dict[str, Any]:
        """Return the handler's keyword arguments, typed, from a stored payload.

        Raises:
            PayloadInvalid: the text is not a JSON object, or does not fit the signature.
        """
        shape = self._shape
        try:
            return shape.arguments(payload_text)
        except Exception as error:  # noqa: BLE001  # constructors of users' types raise anything
            raise PayloadInvalid(self.kind, self._misfits(payload_text, error)) from None

    def json_schema(self) -> dict[str, Any]:
        """Return the JSON Schema (2020-12) of the payload, with the task's kind as its title."""
        shape = self._shape
        definitions: dict[str, Any] = {}
        hook = functools.partial(_schema_of, definitions=definitions)
        document = msgspec.json.schema(shape.struct, schema_hook=hook)
        definitions.update(document["$defs"])
        schema: dict[str, Any] = definitions.pop(document["$ref"].removeprefix("#/$defs/"))
        schema["title"] = self.kind
        for name, default in shape.defaults.items():
            _note_default(schema["properties"][name], default)
        if shape.takes_extra:
            extra = msgspec.json.schema(shape.extra_hint, schema_hook=hook)
            definitions.update(extra.pop("$defs", {}))
            schema["additionalProperties"] = extra
        return schema | ({"$defs": definitions} if definitions else {})

    @functools.cached_property
    def _shape(self) -> _Shape:
        hints = self._resolved_hints()
        own = [p for p in self._parameters if not self._is_context(hints[p.name])]
        context = [p.name for p in self._parameters if p not in own]
        if len(context) > 1:
            raise self._unusable(f"more than one context parameter: {', '.join(context)}")
        for parameter in own:
            self._check_supported(parameter.name, hints[parameter.name])
        return _Shape.of(own, hints, context_parameter=context[0] if context else None)

    def _is_context(self, hint: object) -> bool:
        return hint is self._context_type or typing.get_origin(hint) is self._context_type

    def _resolved_hints(self) -> dict[str, Any]:
        """Resolve each parameter by itself, so that an unresolvable return type does no harm."""
        holder = _annotated(self.function)
        hints: dict[str, Any] = {}
        # Read again: since Python 3.14 an annotation is evaluated when it is read.
        for parameter in _parameters_of(self.function):
            annotation = parameter.annotation
            is_bare = annotation is inspect.Parameter.empty
            hints[parameter.name] = Any if is_bare else self._resolved(parameter, holder)
        return hints

    def _resolved(self, parameter: inspect.Parameter, holder: Callable[..., object]) -> Any:
        carrier = types.FunctionType(_nothing.__code__, getattr(holder, "__globals__", {}))
        carrier.__annotations__ = {"hint": parameter.annotation}
        try:
            return typing.get_type_hints(carrier, include_extras=True)["hint"]
        except Exception as error:
            raise self._unusable(
                f"annotation {_annotation_text(parameter.annotation)} of parameter "
                f"{parameter.name!r} can't be resolved ({misfits.described(error)}); "
                "define or import it at module level, not only for type checkers"
            ) from error

    def _check_supported(self, name: str, hint: object) -> None:
        try:
            msgspec.json.Decoder(hint)
        except Exception as error:
            text = f"annotation {_annotation_text(hint)} of parameter {name!r} can't be a payload"
            raise self._unusable(f"{text}: {misfits.described(error)}") from error

    def _unusable(self, problem: str) -> OptionInvalid:
        module = getattr(self.function, "__module__", "")
        name = getattr(self.function, "__qualname__", repr(self.function))
        return OptionInvalid(f"task {self.kind!r}", f"function {module}.{name}: {problem}")

    def _bind(
        self, args: tuple[object, ...], kwargs: dict[str, Any]
    ) -> tuple[dict[str, Any], list[FieldError]]:
        names = self._shape.positional
        fields = dict(zip(names, args, strict=False))
        twice = [name for name in fields if name in kwargs]
        errors = [FieldError(name, "given twice, by position and by name") for name in twice]
        if len(args) > len(names):
            counts = f"{len(args)} values by position, but at most {len(names)} are accepted"
            errors.append(FieldError("payload", counts))
        return fields | kwargs, errors

    def _encode(self, fields: dict[str, Any], errors: typing.Sequence[FieldError]) -> str:
        shape = self._shape
        try:
            text, is_plain = codec.encode_fields(self.kind, fields)
            shape.check(text)
            if not is_plain:
                shape.check_native(fields)
                shape.check_unchanged(fields)
        except Exception as error:  # noqa: BLE001  # constructors of users' types raise anything
            found = [*errors, *self._refusals(fields, error)]
            # Not chained: pydantic's own message shows the values, ours must not.
            raise PayloadInvalid(self.kind, found) from None
        if errors:
            raise PayloadInvalid(self.kind, errors)
        return text

    def _refusals(self, fields: dict[str, Any], error: Exception) -> list[FieldError]:
        """Return the fields that can't be stored, as the codec found, and those that don't fit."""
        unstorable = error.errors if isinstance(error, PayloadInvalid) else ()
        found = codec.first_errors(self._field_errors(fields, is_storable=not unstorable))
        named = {misfit.field for misfit in found}
        found = [problem for problem in unstorable if problem.field not in named] + found
        return found or [FieldError("payload", misfits.described(error))]

    def _misfits(self, payload_text: str, error: Exception) -> list[FieldError]:
        try:
            fields = codec.decode(payload_text)
        except ValueError as garbage:
            return [FieldError("payload", str(garbage))]
        if not isinstance(fields, dict):
            return [FieldError("payload", "is not a JSON object")]
        return self._refusals(fields, error)

    def _field_errors(self, fields: dict[str, Any], *, is_storable: bool) -> Iterator[FieldError]:
        """Check every field by itself, in the signature's order, then the unexpected ones."""
        shape = self._shape
        for name, hint in shape.hints.items():
            if name in fields:
                yield from misfits.value_errors(fields[name], hint, name, is_storable=is_storable)
            elif name in shape.required:
                yield FieldError(name, "required")
        for key, value in fields.items():
            if key in shape.hints:
                continue
            name = codec.key_name(key)
            if shape.takes_extra and name != shape.context_parameter:
                yield from misfits.value_errors(
                    value, shape.extra_hint, name, is_storable=is_storable
                )
            else:
                yield FieldError(codec.join_path("", name), self._unexpected(name))

    def _unexpected(self, name: str) -> str:
        shape = self._shape
        if name == shape.context_parameter:
            return "unexpected; the worker passes the context, it is not part of the payload"
        option = FOREIGN.get(name, name)
        if option in self._options:
            called = f"{self.kind}.using({option}=...).enqueue(...)"
            return f"unexpected; as an option of the job, pass it by {called}"
        near = nearest(name, shape.hints)
        return f"unexpected; did you mean {near[0]!r}?" if near else "unexpected"


@dataclass(frozen=True, slots=True)
class _Shape:
    """A signature with its hints resolved. `struct` has a field for each named parameter."""

    hints: dict[str, Any]
    required: frozenset[str]
    defaults: dict[str, object]
    positional: tuple[str, ...]
    takes_extra: bool
    extra_hint: Any
    context_parameter: str | None
    # The hints that leave open what type a value has, None for the other parameters.
    open_types: dict[str, msgspec.inspect.Type | None]
    open_extra: msgspec.inspect.Type | None
    struct: type[msgspec.Struct]
    decoder: msgspec.json.Decoder[Any]
    # Whether every parameter is a number, a text or a boolean.
    is_flat: bool

    @classmethod
    def of(
        cls,
        parameters: list[inspect.Parameter],
        hints: dict[str, Any],
        *,
        context_parameter: str | None,
    ) -> _Shape:
        named = [p for p in parameters if p.kind is not inspect.Parameter.VAR_KEYWORD]
        extra = [hints[p.name] for p in parameters if p not in named]
        empty = inspect.Parameter.empty
        # UNSET marks an argument that was not given, so that the function's own default applies.
        fields: list[Any] = [
            (p.name, hints[p.name], *(() if p.default is empty else (msgspec.UNSET,)))
            for p in named
        ]
        struct = msgspec.defstruct(
            "Payload", fields, kw_only=True, forbid_unknown_fields=not extra, module=__name__
        )
        return cls(
            hints={p.name: hints[p.name] for p in named},
            required=frozenset(p.name for p in named if p.default is empty),
            defaults={p.name: p.default for p in named if p.default is not empty},
            positional=tuple(p.name for p in named if p.kind is p.POSITIONAL_OR_KEYWORD),
            takes_extra=bool(extra),
            extra_hint=extra[0] if extra else None,
            context_parameter=context_parameter,
            open_types={p.name: misfits.open_type(hints[p.name]) for p in named},
            open_extra=misfits.open_type(extra[0]) if extra else None,
            struct=struct,
            decoder=msgspec.json.Decoder(struct, dec_hook=misfits.from_plain),
            is_flat=not extra and all(hints[p.name] in _FLAT for p in named),
        )

    def encoded_flat(self, fields: dict[str, Any]) -> str | None:
        """Return the payload text of plain values, encoded and checked in one pass.

        None if a closer look is needed, which most payloads don't: it takes more than twice as
        long. msgspec writes NaN and infinities as null, and none of these types is ever null.
        """
        if not self.is_flat or not _FLAT.issuperset(map(type, fields.values())):
            return None
        try:
            encoded = _encode_flat(fields)
            if len(encoded) > _FLAT_BYTES_MAX or b"null" in encoded or b"\\u0000" in encoded:
                return None
            self.decoder.decode(encoded)
            return encoded.decode()
        except (ValueError, TypeError, OverflowError, RecursionError):
            # The slow path says what is wrong.
            return None

    def check(self, text: str) -> None:
        """Raise anything if the text does not decode to the parameters' types."""
        self._decoded(text)
        if self.takes_extra:
            self._extra(codec.decode(text))

    def check_native(self, fields: dict[str, Any]) -> None:
        """Raise anything if a value only fits once written as text: bytes for a `str`, say."""
        native = misfits.native(fields)
        misfits.converted(native, self.struct)
        if self.takes_extra:
            self._extra(native)

    def check_unchanged(self, fields: dict[str, Any]) -> None:
        """Raise if a value would come back as another type, because no annotation names its own."""
        for name, value in fields.items():
            type_info = self.open_types.get(name, self.open_extra)
            if type_info is not None:
                for change in misfits.changes(value, type_info, name):
                    raise ValueError(change.error().message)

    def arguments(self, text: str) -> dict[str, Any]:
        values = msgspec.structs.asdict(self._decoded(text))
        if self.defaults:
            values = {name: part for name, part in values.items() if part is not msgspec.UNSET}
        return values | self._extra(codec.decode(text)) if self.takes_extra else values

    def _decoded(self, text: str) -> Any:
        try:
            return self.decoder.decode(text)
        except msgspec.ValidationError:
            # Slower, but `codec` reads the negative integers of 4,300 digits that msgspec refuses.
            return misfits.converted(codec.decode(text), self.struct)

    def _extra(self, fields: dict[str, Any]) -> dict[str, Any]:
        if self.context_parameter in fields:
            raise ValueError("the context is not part of the payload")
        extra = {name: part for name, part in fields.items() if name not in self.hints}
        converted = misfits.converted(extra, dict[str, self.extra_hint])  # type: ignore[name-defined]  # made at run time
        return typing.cast("dict[str, Any]", converted)


_FLAT: Final = frozenset({int, float, str, bool})
_FLAT_BYTES_MAX: Final = 64 * 1024
_encode_flat: Final = msgspec.json.Encoder().encode
_UNNAMED: Final[dict[object, str]] = {
    inspect.Parameter.POSITIONAL_ONLY: "is positional-only, but payloads have names; drop the `/`",
    inspect.Parameter.VAR_POSITIONAL: "takes values without names; take one list instead",
}


def _inputs_in(fields: Mapping[str, Any]) -> dict[str, Input]:
    """Return the arguments that stand for results of other jobs, or are lists of such."""
    found: dict[str, Input] = {}
    for name, value in fields.items():
        if isinstance(value, Input):
            found[name] = value
        elif isinstance(value, list | tuple) and any(isinstance(part, Input) for part in value):
            if not all(isinstance(part, Input) for part in value):
                raise OptionInvalid(name, "must be results of jobs, or values, not a mix of both")
            found[name] = value[0].joined(value)
    return found


def _nothing() -> None: ...


def _parameters_of(function: Callable[..., object]) -> list[inspect.Parameter]:
    if sys.version_info >= (3, 14):
        # Otherwise a name that is defined further down would fail here, too early.
        forward = annotationlib.Format.FORWARDREF
        signature = inspect.signature(function, annotation_format=forward)
    else:
        signature = inspect.signature(function)
    return list(signature.parameters.values())


def _annotated(function: Callable[..., object]) -> Callable[..., object]:
    """Return the plain function in whose module the annotations were written."""
    while isinstance(function, functools.partial):
        function = function.func
    function = inspect.unwrap(function)
    if not hasattr(function, "__globals__") and not inspect.ismethod(function):
        function = type(function).__call__
    return typing.cast("Callable[..., object]", getattr(function, "__func__", function))


def _annotation_text(annotation: object) -> str:
    if isinstance(annotation, str):
        return repr(annotation)
    return repr(annotation.__qualname__ if isinstance(annotation, type) else str(annotation))


def _schema_of(target: Any, *, definitions: dict[str, Any]) -> dict[str, Any]:
    """Return the schema of a type unknown to msgspec. Move its definitions to the document's."""
    if not hasattr(target, "model_json_schema"):
        return {}
    prefix = f"{target.__qualname__}."
    schema = dict(target.model_json_schema(ref_template=f"#/$defs/{prefix}{{model}}"))
    inner = schema.pop("$defs", {})
    definitions.update({f"{prefix}{name}": part for name, part in inner.items()})
    return schema


def _note_default(schema: dict[str, Any], default: object) -> None:
    try:
        schema["default"] = misfits.plain(default)
    except Exception:  # noqa: BLE001  # a default need not be JSON
        schema.pop("default", None)
