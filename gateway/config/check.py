"""Values to a Config: validates every part against its model and says each mistake in one line.

Adapters' own options are validated apart from the rest, by the models their `ADAPTER` carries, so that one wrong
target hides no other mistake.
"""

from __future__ import annotations

import contextlib
import logging
import types
import typing
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from gateway import registry
from gateway.config.exposure import driven
from gateway.config.models import Config
from gateway.config.units import size_in_bytes
from gateway.contract import Adapter, InboundOptions, TargetOptions
from gateway.registry import Registry
from gateway.yaml_document import Document, DocumentError, Where, did_you_mean, kind_of

if typing.TYPE_CHECKING:
    from gateway.governance.binding import Binding
    from gateway.governance.declined import Driven

log = logging.getLogger(__name__)

RESERVED = ("/admin", "/artifacts", "/healthz", "/readyz", "/metrics", "/ui")
"""Paths of the gateway's own."""
_FROM = {"max_body": ("limits", "body"), "max_upload": ("store", "artifact_limit")}
"""Options of protocols, and the keys for all of them that stand in for those that are left out."""


def build(document: Document, adapters: Registry, path: Path | None) -> Config | None:
    """The config, or None with `document.mistakes` saying why."""
    document.fill()
    if not isinstance(document.value, dict):
        document.refuse((), f"should be a mapping with keys such as 'routes', not {kind_of(document.value)}")
        return None
    _renamed(document, adapters)
    values = dict(document.value)
    values["inbound"] = dict(_inbound(document, values.get("inbound"), adapters, _limits(values)))
    if values.get("routes") is None:
        values["routes"] = []
    if isinstance(values["routes"], list):
        values["routes"] = [_route(document, index, route, adapters) for index, route in enumerate(values["routes"])]
    config: Config | None = None
    try:
        config = Config.bound(values, document, adapters, path)
    except ValidationError as error:
        _explain(document, (), Config, error)
    _matches(document, values["routes"], adapters)
    _brought(document, values["routes"], values["inbound"])
    bindings = dict(_bindings(document, values["routes"], path))
    if config is not None:
        for index, binding in bindings.items():
            for target in config.routes[index].places:
                _demands(document, binding, driven(config, target), config.audit.key)
    if document.mistakes or config is None:
        return None
    for index, binding in bindings.items():
        config.routes[index].govern(binding)
    return config


def _renamed(document: Document, adapters: Registry) -> None:
    """Replace names that adapters had formerly by those of today. Logs each name once."""
    names = {adapter.formerly: name for name, adapter in adapters.items() if adapter.formerly}
    found: set[str] = set()

    def today(name: Any) -> Any:
        if not isinstance(name, str) or name not in names:
            return name
        found.add(name)
        return names[name]

    inbound, routes = document.value.get("inbound"), document.value.get("routes")
    for before in names.keys() & inbound.keys() if isinstance(inbound, dict) else ():
        if (name := names[before]) in inbound:
            continue  # both: the old name is refused
        found.add(before)
        section = inbound.pop(before)
        inbound[name] = {"path": f"/{before}"} | (section or {}) if isinstance(section, dict | None) else section
        for where in [where for where in document.lines if where[:2] == ("inbound", before)]:
            document.lines["inbound", name, *where[2:]] = document.lines[where]
    for route in routes if isinstance(routes, list) else ():
        several = route.get("targets") if isinstance(route, dict) else None
        places = several if isinstance(several, list) else ()
        for section in (route.get("target"), route.get("match"), *places) if isinstance(route, dict) else ():
            if isinstance(section, dict) and "protocol" in section:
                given = section["protocol"]
                section["protocol"] = [today(name) for name in given] if isinstance(given, list) else today(given)
    for before in sorted(found):
        log.warning("%s: protocol '%s' is called '%s' now", document.file, before, names[before])


# --- the parts that adapters know -------------------------------------------------------------------------------


def _limits(values: dict[str, Any]) -> dict[str, int]:
    """Defaults from `limits.body` and `store.artifact_limit` for options that a section leaves out.

    Without those that are not given, or wrong: that is told with the rest of their sections.
    """
    found: dict[str, int] = {}
    for option, (section, key) in _FROM.items():
        given = values.get(section)
        if isinstance(given, dict) and key in given:
            with contextlib.suppress(ValueError):
                found[option] = size_in_bytes(given[key])
    return found


def _inbound(
    document: Document, given: Any, adapters: Registry, limits: Mapping[str, int]
) -> Iterator[tuple[str, InboundOptions]]:
    """Every protocol to serve with its options, `path` and the `limits` filled in. Notes mistakes."""
    serving = registry.serving(adapters)
    if given is None:
        given = {name: None for name, adapter in serving.items() if adapter.unnamed}
    if not isinstance(given, dict):
        document.refuse(("inbound",), f"should be a mapping of protocols, not {kind_of(given)}")
        return
    taken: dict[str, str] = {}
    for name, options in given.items():
        where = ("inbound", name)
        if (adapter := serving.get(name)) is None:
            document.refuse(where, _no_adapter(name, serving, adapters, "calls agents but serves no clients"))
            continue
        defaults = {option: size for option, size in limits.items() if option in adapter.serve_options.model_fields}
        section = defaults | (options or {}) if isinstance(options, dict | None) else options
        asked = adapter.serve_options
        if section == {} and not any(field.is_required() for field in asked.model_fields.values()):
            model: InboundOptions | None = asked.model_construct()  # its validator would take a hundredth of a start
        else:
            model = _validated(document, where, asked, section)
        if model is None:
            continue
        mount = _mount(adapter, model.path)
        if fault := _path_fault(mount) or _meeting(mount, taken):
            document.refuse((*where, "path"), fault)
        else:
            taken[mount] = name
        yield name, model.model_copy(update={"path": mount})


def _mount(adapter: Adapter, path: str | None) -> str:
    """Where an adapter is mounted: begins with a slash and ends without one."""
    if path is None:
        path = adapter.path or f"/{adapter.name.replace('_', '-')}"
    return path.rstrip("/")


def _path_fault(path: str) -> str | None:
    if path and not path.startswith("/"):
        return "should begin with '/'"
    if not path or any(character in path for character in "{}?# ") or "//" in path:
        return "should be a plain path such as '/agents'"
    if any(path == own or path.startswith(f"{own}/") for own in RESERVED):
        return f"'{path}' is the gateway's own; choose another"
    return None


def _meeting(path: str, taken: Mapping[str, str]) -> str | None:
    """The mistake in a path that meets another one: requests for the inner of two would come to the outer."""
    if path in taken:
        return f"'{path}' is {taken[path]}'s path"
    for other, name in taken.items():
        if path.startswith(f"{other}/") or other.startswith(f"{path}/"):
            return f"'{path}' and {name}'s path '{other}' are one below the other"
    return None


def _route(document: Document, index: int, route: Any, adapters: Registry) -> Any:
    """The route with its target as a model: a stand-in where the target is wrong, so that the rest is still checked."""
    if not isinstance(route, dict):
        return route
    where: Where = ("routes", index)
    if "targets" not in route:
        if "target" not in route:
            return route
        return {**route, "target": _target(document, (*where, "target"), route["target"], adapters)}
    given = route["targets"]
    if not isinstance(given, list) or not given:
        document.refuse((*where, "targets"), "should be a list of one target or more")
        given = []
    if "target" in route:
        document.refuse((*where, "targets"), "name either `target` or `targets`")
    targets = [_target(document, (*where, "targets", at), one, adapters) for at, one in enumerate(given)]
    _several(document, (*where, "targets"), targets, governed=route.get("manifest") is not None)
    return {**route, "target": targets[0] if targets else TargetOptions(protocol=""), "targets": targets}


def _several(document: Document, where: Where, targets: Sequence[TargetOptions], *, governed: bool) -> None:
    """What is wrong with targets beside one another."""
    keys = [target.key for target in targets]
    known = [at for at, target in enumerate(targets) if target.protocol]
    for at in known:
        target, before = targets[at], keys.index(keys[at])
        if before != at:
            document.refuse((*where, at), f"is targets[{before}] again; give that a greater `weight`")
        elif len(targets) > 1 and target.stands_for_many:
            document.refuse(
                (*where, at, "agents"), "stands for many agents: name one of them, or make it a route's only target"
            )
        elif governed and target.protocol != targets[known[0]].protocol:
            message = f"the route is governed, and targets[{known[0]}] speaks another protocol: one judge is for all"
            document.refuse((*where, at, "protocol"), message)
    if known and len(known) == len(targets) and not any(target.weight for target in targets):
        document.refuse(where, "one of them should have a `weight` above 0")


def _target(document: Document, where: Where, target: Any, adapters: Registry) -> TargetOptions:
    """The target as a model, or a stand-in."""
    stand_in = TargetOptions(protocol="")
    if not isinstance(target, dict):
        document.refuse(where, f"should be a mapping with keys such as 'protocol', not {kind_of(target)}")
        return stand_in
    calling = registry.calling(adapters)
    protocol = target.get("protocol")
    if "protocol" not in target:
        document.refuse((*where, "protocol"), f"required; have {_names(calling)}", document.line(where))
    elif not isinstance(protocol, str) or protocol not in calling:
        missing = _no_adapter(protocol, calling, adapters, "serves clients but calls no agents")
        document.refuse((*where, "protocol"), missing)
    else:
        return _validated(document, where, calling[protocol].target_options, target) or stand_in
    return stand_in


Model = typing.TypeVar("Model", bound=BaseModel)


def _validated(document: Document, where: Where, model: type[Model], value: Any) -> Model | None:
    try:
        return model.model_validate(value, context={"base": Path(document.file).absolute().parent})
    except ValidationError as error:
        _explain(document, where, model, error)
        return None


def _no_adapter(name: Any, fitting: Mapping[str, Adapter], adapters: Registry, otherwise: str) -> str:
    if name in adapters:
        return f"'{name}' {otherwise}; have {_names(fitting)}"
    return f"no adapter '{name}'; have {_names(fitting)}{did_you_mean(name, fitting)}"


# --- rules that span several keys -------------------------------------------------------------------------------


def _matches(document: Document, routes: Any, adapters: Registry) -> None:
    """`match.protocol` names adapters that serve; routes of one name differ in their match and can be reached."""
    serving = registry.serving(adapters)
    seen: dict[str, list[tuple[int, Any]]] = {}
    for index, route in enumerate(routes if isinstance(routes, list) else ()):
        match = route.get("match") or {} if isinstance(route, dict) else None
        if not isinstance(match, dict):  # already explained
            continue
        given, metadata = match.get("protocol", []), match.get("metadata", {})
        protocols = given if isinstance(given, list) else [given]
        for place, name in enumerate(protocols):
            if isinstance(name, str) and name not in serving:
                where: Where = ("routes", index, "match", "protocol", *([place] if isinstance(given, list) else []))
                document.refuse(where, _no_adapter(name, serving, adapters, "calls agents but serves no clients"))
        name, key = route.get("name"), (frozenset(map(str, protocols)), metadata)
        if not isinstance(name, str):
            continue
        for before, other in seen.setdefault(name, []):
            place_before = f"routes[{before}] (line {document.line(('routes', before, 'name'))})"
            if other == key:
                document.refuse(("routes", index, "name"), f"'{name}' is {place_before} already, with the same match")
                break
            if other == (frozenset(), {}):
                document.refuse(("routes", index, "name"), f"never reached: {place_before} takes every request for it")
                break
        seen[name].append((index, key))


def _brought(document: Document, routes: Any, inbound: Mapping[str, InboundOptions]) -> None:
    """No route has the name of an agent that an inbound half brings: it would stand in its place."""
    brought = {name: protocol for protocol, options in inbound.items() for name in options.brings}
    for index, route in enumerate(routes if isinstance(routes, list) else ()):
        name = route.get("name") if isinstance(route, dict) else None
        if isinstance(name, str) and name in brought:
            message = f"'{name}' is an agent of inbound.{brought[name]} itself; choose another name"
            document.refuse(("routes", index, "name"), message)


def _bindings(document: Document, routes: Any, path: Path | None) -> Iterator[tuple[int, Binding]]:
    """The bindings of routes that name a manifest. Mistakes in those documents are told with the file's own."""
    for index, route in enumerate(routes if isinstance(routes, list) else ()):
        name = route.get("manifest") if isinstance(route, dict) else None
        if not isinstance(name, str):
            continue
        from gateway.governance.binding import bind
        from gateway.governance.front_matter import shown, workspace_of

        base = path.parent if path else Path.cwd()
        file = base / name
        if not file.is_file():
            document.refuse(("routes", index, "manifest"), f"there is no file {shown(file)}")
            continue
        try:
            yield index, bind(file, workspace_of(file, base))
        except DocumentError as error:
            document.mistakes.extend(error.mistakes)


def _demands(document: Document, binding: Binding, driven: Driven, key: str | None) -> None:
    """Refuse documents whose demands are not met: a key has to be named where something is to be signed, say."""
    from gateway.governance.declined import declined

    told = [*declined(binding, driven), *binding.unmet(key=key is not None)]
    document.mistakes.extend(mistake for mistake in told if mistake not in document.mistakes)


# --- pydantic's errors in our words -----------------------------------------------------------------------------


def _explain(document: Document, base: Where, model: type[BaseModel], error: ValidationError) -> None:
    """Note every error of `model` for the value at `base`, one mistake a key."""
    told: dict[Where, list[str]] = {}
    for detail in error.errors(include_url=False):
        where = _where(document, base, detail)
        message = _message(detail, model, where[len(base) :])
        if message not in told.setdefault(where, []):
            told[where].append(message)
    for where, messages in told.items():
        choices = [messages[0], *(message.removeprefix("should be ") for message in messages[1:])]
        document.refuse(where, " or ".join(choices), document.line(where))


def _where(document: Document, base: Where, detail: ErrorDetails) -> Where:
    """The key in the file: pydantic's location without the steps that name a union's member."""
    where = base
    for step in detail["loc"]:
        if (*where, step) in document.lines:
            where = (*where, step)
    if detail["type"] == "missing":
        where = (*where, detail["loc"][-1])
    return where


def _message(detail: ErrorDetails, model: type[BaseModel], where: Where) -> str:
    """The mistake in words; secrets may be among the values, so only names and pointers are ever repeated."""
    kind, given, key = detail["type"], detail["input"], where[-1] if where else ""
    if kind == "extra_forbidden":
        keys = [name for owner in _models(model, where[:-1]) for name in _keys(owner)]
        return f"unknown key{did_you_mean(key, keys) or f'; have {_names(keys)}'}"
    if kind == "string_type":
        quoted = ": put it in quotes" if isinstance(given, int | float) else ""
        return f"should be text, not {kind_of(given)}{quoted}"
    if kind == "string_pattern_mismatch" and key == "name":
        return f"'{given}' is not a name: letters, digits, '_' and '-' only"
    if kind == "string_pattern_mismatch" and "text" in where:
        return f"'{given}' is not a JSON pointer: '' or '/key/key'"
    if kind == "string_pattern_mismatch" and "hosts" in where:
        return f"'{given}' is not a host's name, which has no scheme, port or path"
    message = detail["msg"].removeprefix("Value error, ").replace("Input should be", "should be")
    if words := _WORDS.get(kind):
        line = isinstance(given, str) and "list" in words
        return words.format(kind=kind_of(given)) + (
            ": put it in brackets, its parts separated by commas" if line else ""
        )
    return message if message[1:2].isupper() else message[0].lower() + message[1:]  # 'URL ...' begins with no sentence


_WORDS = {
    "missing": "required",
    "model_type": "should be a mapping, not {kind}",
    "model_attributes_type": "should be a mapping, not {kind}",
    "dict_type": "should be a mapping, not {kind}",
    "tuple_type": "should be a list, not {kind}",
    "list_type": "should be a list, not {kind}",
    "int_parsing": "should be a whole number without a unit, not {kind}",
    "float_parsing": "should be a number without a unit, not {kind}",
}


def _models(model: Any, where: Iterable[str | int]) -> list[type[BaseModel]]:
    """The models that may stand at `where` below `model`."""
    here = members(model)
    for step in where:
        if isinstance(step, int) or not here:
            continue
        found: list[type[BaseModel]] = []
        for owner in here:
            field = owner.model_fields.get(step)
            found += members(field.annotation) if field else []
        here = found
    return here


def members(annotation: Any) -> list[type[BaseModel]]:
    """Every model in a type: `tuple[Route, ...]`, `Command | Url`, `dict[str, Model]`."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [annotation]
    if isinstance(annotation, types.GenericAlias | types.UnionType) or typing.get_origin(annotation) is not None:
        return [model for member in typing.get_args(annotation) for model in members(member)]
    return []


def _keys(model: type[BaseModel]) -> list[str]:
    return [field.alias or name for name, field in model.model_fields.items()]


def _names(names: Iterable[str]) -> str:
    return ", ".join(dict.fromkeys(names)) or "none"
