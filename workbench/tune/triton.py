"""The configurations of a Triton cell: those of its `triton.autotune`, and those that `configs=` adds.

What the autotuner would leave out by its own hooks is left out here, hooks before a launch run, and the winner goes
where the autotuner itself keeps winners: the fast path of a call is what it was.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from .. import gpu
from ..build import triton_compile, triton_launches, triton_module, triton_tune
from ..build.resources import Resources
from ..errors import BuildError, SchemaError
from ..reports.tuning import Config, Value
from ..tiers.triton import TritonKernel
from .space import Candidate, Failed, Turn, frozen_key, too_much


class TritonSpace:
    """The autotuned kernels that an installed Triton cell launches for these arguments.

    >>> space = TritonSpace(kernel, {"a": a, "b": b}, configs=[{"BLOCK": 256, "num_warps": 8}])
    >>> space.candidates[0].config
    {'BLOCK': 64, 'num_warps': 4, 'num_stages': 3}

    `configs` are `triton.Config`s or mappings of what they hold, for the one autotuned kernel, or by kernel's name.
    """

    def __init__(self, kernel: TritonKernel, arguments: Mapping[str, object], configs: object = ()) -> None:
        self.kernel = kernel
        self.arguments = dict(arguments)
        self.module = triton_module.load(kernel.source)
        self.seen = kernel.specialised.seen(dict(arguments), interpreted=kernel.interpreted)
        self.notes: tuple[str, ...] = (kernel.note,) if kernel.note else ()
        self.tuners: dict[str, Any] = {}
        self.launches: dict[str, list[triton_launches.Seen]] = {}
        for seen in self.seen:
            for tuner in list(triton_tune.tuners(seen.kernel))[:1]:
                name = triton_tune.name(tuner)
                self.tuners[name] = tuner
                self.launches.setdefault(name, []).append(seen)
        self.own = {name: list(tuner.configs) for name, tuner in self.tuners.items()}
        self.more = _more(configs, list(self.tuners), kernel.schema.qualname)
        self._single = len(self.tuners) == 1
        self._configs: dict[tuple[str, str], Any] = {}  # by (kernel, configuration)
        self._left_out: set[tuple[str, str]] = set()
        self._compiled: dict[tuple[str, str], triton_compile.Compiled] = {}
        self._former: dict[tuple[str, tuple], Any] = {}
        self.candidates = [c for name in self.tuners for c in self._of_kernel(name)]

    def _of_kernel(self, name: str) -> Iterator[Candidate]:
        tuner = self.tuners[name]
        known = list(tuner.configs)
        added = [c for given in self.more.get(name, ()) if (c := triton_tune.of(tuner, given)) not in known]
        tuner.configs = [*known, *added]
        try:
            kept: set[int] = set()
            for seen in self.launches[name]:
                kept |= set(map(id, triton_tune.configurations(tuner, seen.given, len(seen.args))))
        finally:
            tuner.configs = known
        first = next((c for c in (*known, *added) if id(c) in kept), known[0])
        for config in [first, *(c for c in (*known, *added) if c is not first)]:
            plain = as_plain(config)
            key = name, repr(plain)
            if key in self._configs:
                continue
            self._configs[key] = config
            if id(config) not in kept:
                self._left_out.add(key)
            yield Candidate(plain, "" if self._single else name)

    def _key(self, one: Candidate) -> tuple[str, str]:
        return one.kernel or next(iter(self.tuners)), repr(dict(one.config))

    # ------------------------------------------------------------ building

    def ruled_out(self, one: Candidate) -> str:
        return "the kernel's own prune_configs_by leaves it out" if self._key(one) in self._left_out else ""

    def resources(self, one: Candidate) -> tuple[Resources, ...]:
        made = self._compiled.get(self._key(one))
        return (made.resources,) if made else ()

    def build(self, some: Sequence[Candidate]) -> Iterator[tuple[Candidate, Failed | None]]:
        forms, owners = [], []
        for one in some:
            name, _ = self._key(one)
            tuner, config = self.tuners[name], self._configs[self._key(one)]
            known = tuner.configs
            for seen in self.launches[name]:
                tuner.configs = [config]  # one alone is not pruned
                try:
                    forms += triton_launches.forms(seen)[:1]
                finally:
                    tuner.configs = known
                owners.append(one)
        waiting = {id(one): sum(o is one for o in owners) for one in some}
        for place, made in triton_compile.each(self.module, forms, gpu.target()):
            one = owners[place]
            if isinstance(made, BuildError):
                waiting[id(one)] = 0
                status = "resources" if made_for_lack_of_room(made) else "build"
                yield one, Failed(status, f"line {made.line}: {made.message}" if made.line else made.message)
                continue
            self._compiled[self._key(one)] = made
            waiting[id(one)] -= 1
            if waiting[id(one)] == 0:
                said = self._does_not_fit(one, made.resources)
                yield one, Failed("resources", said) if said else None

    def _does_not_fit(self, one: Candidate, taken: Resources) -> str:
        warps = one.config.get("num_warps") or 4
        assert isinstance(warps, int)
        return too_much((taken,), {taken.kernel: 32 * warps}, 0, {})

    # ------------------------------------------------------------ running

    def tried_as(self, one: Candidate) -> tuple[TritonKernel, Turn]:
        name, _ = self._key(one)
        return self.kernel, {name: self._configs[self._key(one)].all_kwargs()}

    def enter(self, one: Candidate) -> None:
        name, _ = self._key(one)
        tuner, config = self.tuners[name], self._configs[self._key(one)]
        for seen in self.launches[name]:
            key = triton_tune.cache_key(tuner, seen.given)
            self._former.setdefault((name, key), tuner.cache.get(key))
            tuner.cache[key] = config
        if len(tuner.configs) < 2 and config not in tuner.configs:  # one alone is run without a look at the cache
            tuner.configs = [*tuner.configs, config]

    def leave(self) -> None:
        for (name, key), config in self._former.items():
            if config is None:
                self.tuners[name].cache.pop(key, None)
            else:
                self.tuners[name].cache[key] = config
        self._former.clear()
        for name, own in self.own.items():
            tuner = self.tuners[name]
            tuner.configs = [c for c in tuner.configs if c in own or c in tuner.cache.values()] or own

    def freeze(self, one: Candidate) -> None:
        self.leave()
        self.enter(one)
        self._former.clear()
        name, _ = self._key(one)
        tuner, winner = self.tuners[name], self._configs[self._key(one)]
        tuner.workbench_winners = [*(c for c in getattr(tuner, "workbench_winners", ()) if c != winner), winner]
        tensors = [t for a in self.kernel.declaration.arguments if a.is_tensor or a.is_tensor_list
                   for t in _several(self.arguments.get(a.name))]  # fmt: skip
        key, config = frozen_key(tensors), dict(one.config)
        several = self.kernel.frozen.get(key, {})
        self.kernel.frozen = {**self.kernel.frozen, key: {**several, one.kernel: config} if one.kernel else config}

    def line(self, winners: Mapping[str, Config]) -> str:
        if self._single:
            return pasted(next(iter(winners.values())))
        return "\n".join(f"{name}: {pasted(config)}" for name, config in winners.items())


def as_plain(config: Any) -> dict[str, Value]:
    """What a `triton.Config` holds, as plain data: its values, then the options that are set.

    >>> as_plain(triton.Config({"BLOCK": 64}, num_warps=8))
    {'BLOCK': 64, 'num_warps': 8, 'num_stages': 3}
    """
    found = {n: v if isinstance(v, (int, float, bool, str)) else repr(v) for n, v in config.kwargs.items()}
    options = {n: getattr(config, n, None) for n in triton_tune.OPTIONS}
    return {**found, **{n: v for n, v in options.items() if v is not None and (n, v) != ("num_ctas", 1)}}


def pasted(config: Config) -> str:
    """The configuration as a cell has it.

    >>> pasted({"BLOCK": 64, "num_warps": 8, "num_stages": 3})
    'triton.Config({"BLOCK": 64}, num_warps=8, num_stages=3)'
    """
    values = ", ".join(f'"{n}": {v!r}' for n, v in config.items() if n not in triton_tune.OPTIONS)
    options = "".join(f", {n}={v!r}" for n, v in config.items() if n in triton_tune.OPTIONS)
    return f"triton.Config({{{values}}}{options})"


def made_for_lack_of_room(error: BuildError) -> bool:
    return isinstance(error, triton_compile.NoRoom) or type(error.__cause__).__name__ in triton_tune.UNFIT


def _several(value: Any) -> list[Any]:
    return list(value) if isinstance(value, (list, tuple)) else [value]


def _more(configs: Any, names: Sequence[str], op: str) -> dict[str, list[dict[str, Any]]]:
    """`configs=` by kernel, each with all that a `triton.Config` of it holds."""
    if not configs:
        return {}
    by_name = configs if isinstance(configs, Mapping) and set(configs) <= set(names) else None
    if by_name is None:
        known = ", ".join(names) or "none"
        if isinstance(configs, (Mapping, str)) or not names:
            said = "configs= is a list of configurations, or one by kernel"
            raise SchemaError(f"{op}: {said}; its autotuned kernels: {known}")
        if len(names) > 1:
            raise SchemaError(f"{op} autotunes {known}: say of which, configs={{{names[0]!r}: [...]}}")
        by_name = {names[0]: configs}
    return {name: [_full(c, op) for c in several] for name, several in by_name.items()}


def _full(config: Any, op: str) -> dict[str, Any]:
    from triton import Config as Its

    if isinstance(config, Its):
        return dict(config.all_kwargs())
    if not isinstance(config, dict) or not all(type(n) is str for n in config):
        wanted = 'triton.Config, or mappings such as {"BLOCK": 64, "num_warps": 8}'
        raise SchemaError(f"{op}: configs= holds {wanted}; got {config!r}")
    options = {n: v for n, v in config.items() if n in triton_tune.OPTIONS}
    return dict(Its({n: v for n, v in config.items() if n not in triton_tune.OPTIONS}, **options).all_kwargs())


__all__ = ["TritonSpace", "as_plain", "pasted"]
