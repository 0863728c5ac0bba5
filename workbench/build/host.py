"""A host cell as the C++ text that its compiler sees: the user's functions on `Tensor`, and a wrapper. Pure text.

The wrapper takes the schema's types, converts them to those of the user's signature with range checks, and is
registered with torch by the library's own `wb_register`. A void function whose outputs are made by directives gets a
thunk instead, which the launcher of the declaration calls with tensors in place of pointers.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from ..directives import Declaration
from ..directives.vocabulary import CPP_WORDS
from ..errors import SchemaError
from ..schema import Argument, Schema
from ..source import Function, Parameter, Source, code
from .body_parts import line_directive
from .host_types import NUMBERS, converted, from_slot, native_type, plain, result_types, results


@dataclass(frozen=True)
class Room:
    """Where the wrapper stands: the header it needs, torch's dispatch key, and what the compiler reads of the cell.

    `text` and `place` (file, line) are those of the host half of a CUDA cell; "" and None: the cell as it is. `guard`:
    it makes the tensors' GPU the current one.
    """

    header: str = "wb_host.h"
    key: str = "CPU"
    text: str = ""
    place: tuple[str, int] | None = None
    guard: bool = False

    def at(self, function: Function, source: Source) -> str:
        file, line = self.place or (source.file, function.line)
        return line_directive(line, file)


CPU = Room()


def bound(function: Function, declaration: Declaration) -> list[tuple[Parameter, Argument]]:
    """Each parameter with the argument that it takes, by name or by an alias of a directive."""
    known = {a.name: a for a in declaration.arguments}
    pairs = []
    for p in function.parameters:
        name = declaration.aliases.get(p.name, p.name)
        if not name:
            raise SchemaError(
                f"{function.name}: the parameter '{p.spelled}' has no name, and binding is by name", line=p.line
            )
        if name not in known:
            near = difflib.get_close_matches(p.name, known, 1)
            hint = f"did you mean {near[0]!r}?" if near else f"the arguments are {', '.join(known)}"
            raise SchemaError(f"{function.name}: the parameter {p.name!r} binds to no argument; {hint}", line=p.line)
        if p.pointer:
            raise SchemaError(
                f"{function.name}: '{p.spelled}' is a pointer beside a Tensor; take the Tensor and ask it for "
                f"const_data_ptr<{p.type}>()",
                line=p.line,
            )
        pairs.append((p, known[name]))
    return pairs


def render(
    source: Source, schema: Schema, declaration: Declaration, function: Function, *, gradients: Sequence[str] = (),
    name: str = "", room: Room = CPU,
) -> str:  # fmt: skip
    """The whole text of a host cell that returns its results, or mutates its arguments.

    `gradients` are the arguments whose gradients a backward returns, in order; `name` is another one to register
    under; `room` says for which device. SchemaError, on its line, for a parameter or a result that does not fit the
    schema.

    `call` converts arguments and results; `entry`, which torch calls, sees to strides. Where the reference's can be
    asked for, the results get those. Incoming gradients are made contiguous, and so are all arguments of a function
    that reads data and no strides.
    """
    pairs, backward = bound(function, declaration), declaration.entry == "backward"
    names = {a.name: _identifier(a.name) for a in declaration.arguments}
    types = {names[a.name]: native_type(a, function.line) for a in declaration.arguments}
    call = f"{_name(function)}({', '.join(converted(p, a, names[a.name], schema.qualname) for p, a in pairs)})"
    made, count = _gradients(schema, function, call, gradients, room) if backward else _results(schema, function, call)
    shown = count if backward else len(schema.outputs)
    lists = any(a.is_tensor_list for a in schema.tensors) if backward else set(schema.output_types) != {"Tensor"}
    asked = f"wb_layout::{schema.namespace}__{name or schema.name}{'_backward' * backward}"
    layout = asked if schema.tensors and not lists else ""  # the layout op makes single tensors alone
    given, parameters = ", ".join(types), ", ".join(f"{t} {n}" for n, t in types.items())
    settled = "".join(_settled(source, schema, declaration, names, layout))
    slow = f'wb::slowly<{str(reads_no_strides(source)).lower()}, {_places(shown)}>(wb_cell::call, "{layout}", {given})'
    guard = f"{_guard(schema, names, names.values())} " if room.guard and schema.tensors else ""
    at = room.at(function, source)
    lines = [at, f"static auto call({', '.join(f'{t}& {n}' for n, t in types.items())}) {{ {made} }}"]
    entries = {"entry": count} if backward or not schema.saves else {"entry": count, "seen": shown}
    for entry, results_ in entries.items():
        back = f"return wb::pick<{_places(results_)}>({{}});" if results_ else "{};"
        arrive = f"wb::arrive({given}); " if schema.tensors else ""
        ask = f"if (wb::ask({given})) {{ {back.format(slow)} }} " if layout else ""
        call = back.format(f"wb_cell::call({given})")
        lines += [at, f"static auto {entry}({parameters}) {{ {arrive}{guard}{settled}{ask}{call} }}"]
    public = {schema.name: list(entries)[-1], f"{schema.name}_forward": "entry"}
    public = {f"{name or schema.name}_backward": "entry"} if backward else public
    registered = " ".join(f'm.impl("{n}", TORCH_BOX(&wb_cell::{entry}));' for n, entry in public.items())
    last = f'WB_MODULE("{schema.namespace}", "{room.key}", {registered})'
    return _around(source, function, room, ["namespace wb_cell {", *lines, "}  // namespace wb_cell", last])


def _settled(
    source: Source, schema: Schema, declaration: Declaration, names: Mapping[str, str], layout: str
) -> Iterator[str]:
    """What `entry` does to arguments that are not contiguous, where no call that asks for strides sees to it."""
    safe, own = reads_no_strides(source), {a.name for a in schema.arguments}
    for a in declaration.arguments:
        if a.type not in ("Tensor", "Tensor?", "Tensor[]", "Tensor?[]"):
            continue
        if safe and a.mutated:
            yield f'wb::refuse_strided({names[a.name]}, "{schema.qualname}: {a.name}"); '
        elif (safe and not layout) or (
            declaration.entry == "backward" and a.name.startswith("grad_") and a.name not in own
        ):
            yield f"wb::make_contiguous({names[a.name]}); "


def reads_no_strides(source: Source) -> bool:
    """Does the cell read data, and no strides? Then it counts on contiguous tensors."""
    text = code(source.text)
    return "data_ptr" in text and not re.search(r"\b(?:is_)?contiguous\b|\bstrides?\b", text)


def _results(schema: Schema, function: Function, call: str) -> tuple[str, int]:
    """The body of a forward's `call`, and how many results it gives, those included that are saved."""
    names = (*schema.outputs, *schema.saves)
    wanted = [
        native_type(Argument(n, t), function.line) for n, t in zip(schema.outputs, schema.output_types, strict=True)
    ]
    wanted += ["Tensor"] * len(schema.saves)
    got = result_types(function)
    if len(got) != len(wanted):
        raise SchemaError(
            f"{function.name} returns {function.returns}, {len(got)} results; {schema.qualname} needs {len(wanted)}: "
            f"{', '.join(names) or 'nothing'}",
            line=function.line,
        )
    for name, native, given_type in zip(names, wanted, got, strict=True):
        numbers = next((allowed for own, allowed in NUMBERS.values() if own == native), set())
        if given_type not in (native, "auto") and given_type not in numbers:
            raise SchemaError(
                f"{function.name} returns a {given_type} as {name}, which is a {native} in the schema",
                line=function.line,
            )
    return (f"return wb::results<{', '.join(wanted)}>({call});" if wanted else f"{call};"), len(wanted)


def _gradients(schema: Schema, function: Function, call: str, gradients: Sequence[str], room: Room) -> tuple[str, int]:
    """The body of a backward's `call`: one gradient for each tensor argument, in order."""
    got = result_types(function)
    if not gradients:
        raise SchemaError(
            f"{schema.qualname} takes no floating-point tensor, so that there is no gradient", line=function.line
        )
    if len(got) != len(gradients):
        raise SchemaError(
            f"{function.name} returns {function.returns}, {len(got)} gradients; the floating-point tensor arguments "
            f"are {', '.join(gradients)}: return one for each, std::nullopt where there is none",
            line=function.line,
        )
    single = "wb_got" if not re.match(r"std::(tuple|pair)<", plain(function.returns)) else ""
    made, absent = [], "wb::absent_here()" if room.guard else "wb::absent()"
    for a in schema.tensors:
        if a.name in gradients:
            value = single or f"std::get<{list(gradients).index(a.name)}>(wb_got)"
            made.append(f'wb::gradient({value}, "{schema.qualname}: grad_{a.name}")')
        else:
            made.append("std::vector<Tensor>()" if a.is_tensor_list else absent)
    return f"auto wb_got = {call}; return std::make_tuple({', '.join(made)});", len(made)


def _guard(schema: Schema, names: Iterable[str], values: Iterable[str]) -> str:
    """The statement that makes the tensors' device the current one, and refuses tensors of several devices."""
    quoted = ", ".join(f'"{n}"' for n in names)
    return f'wb::OnDevice wb_on("{schema.qualname}", {{{quoted}}}, {", ".join(values)});'


def thunk(source: Source, declaration: Declaration, function: Function, room: Room = CPU) -> str:
    """The text of a host cell whose outputs its directives make: the launcher calls the thunk with all values."""
    slots = {n: i for i, n in enumerate(declaration.values)}
    passed = []
    for p in function.parameters:
        name = declaration.aliases.get(p.name, p.name)
        if name not in slots:
            near = difflib.get_close_matches(p.name, slots, 1)
            hint = f"; did you mean {near[0]!r}?" if near else ""
            raise SchemaError(
                f"{function.name}: the parameter {p.name!r} binds to no argument and no directive{hint}", line=p.line
            )
        passed.append(from_slot(p, f"v[{slots[name]}]", declaration, name))
    given = {a.name: f"wb::borrow_optional(v[{slots[a.name]}].p)" for a in declaration.arguments if a.is_tensor}
    return _around(
        source,
        function,
        room,
        [
            "WB_EXPORT int wb_call(const wb_value* v) {",
            *([f"  {_guard(declaration.schema, given, given.values())}"] if room.guard and given else []),
            room.at(function, source),
            f"  {_name(function)}({', '.join(passed)});",
            "  return 0;",
            "}",
        ],
    )


def _around(source: Source, function: Function, room: Room, lines: Sequence[str]) -> str:
    if function.templates:
        raise SchemaError(
            f"{function.name} is a template, which nothing calls by itself: write a function that looks at "
            "scalar_type(), and name that one with --entry",
            line=function.line,
        )
    text = source.text if source.text.endswith("\n") else source.text + "\n"
    cell = room.text or f"{line_directive(source.first_line, source.file)}\n{text}"
    last = ["WB_HOST_CUDA"] if room.guard else []
    return "\n".join([f'#include "{room.header}"', cell + room.at(function, source), *lines, *last, ""])


def _name(function: Function) -> str:
    return "::" + "::".join(filter(None, (function.namespace, function.name)))


def _identifier(name: str) -> str:
    """An argument's name in the wrapper: Python may call one `default`."""
    return f"{name}_" if name in CPP_WORDS else name


def _places(count: int) -> str:
    return ", ".join(map(str, range(count)))


__all__ = ["bound", "reads_no_strides", "render", "results", "thunk"]
