"""Passes that simplify a plan: functions from plan to plan. They run whenever steps have been bound, and leave unbound
steps alone.
"""

from __future__ import annotations

import collections
import copy
import dataclasses
import math
from collections.abc import Callable, Mapping

from .._core.graph import Node
from .._core.operator import NativeOperator, Operator, SourceOperator, StageOperator
from .._core.values import Spec
from .._cpu import MOST_STAGES
from .._data.source import Source
from .plan import Plan, Presence, Ref, Step


def bypass_identities(plan: Plan) -> Plan:
    """Steps that read the output of an identity read its input instead. `drop_dead` removes the identity."""
    replacements: dict[Ref, Ref] = {}
    # New presences by old ones: steps of one branch must go on sharing one object.
    presences: dict[Presence | None, Presence | None] = {None: None}

    def new_presence(old: Presence | None) -> Presence | None:
        """Returns a presence whose predicates are replaced; the old one if there is nothing to replace."""
        if old not in presences:
            assert old is not None
            outer, predicate = new_presence(old.outer), replacements.get(old.predicate, old.predicate)
            is_unchanged = outer is old.outer and predicate == old.predicate
            presences[old] = old if is_unchanged else dataclasses.replace(old, outer=outer, predicate=predicate)
        return presences[old]

    steps = []
    for step in plan.steps:
        inputs, presence = tuple(replacements.get(r, r) for r in step.inputs), new_presence(step.presence)
        if inputs != step.inputs or presence is not step.presence:
            step = dataclasses.replace(step, inputs=inputs, presence=presence)
        if step.known and step.op.is_identity(*map(plan.spec, inputs)):
            # A copy to another device is an identity, too, but must stay.
            if plan.spec(inputs[0]) == step.specs[0] and plan.maker(inputs[0]).stage == step.stage:
                replacements[step.outputs[0]] = inputs[0]
        steps.append(step)
    if not replacements:
        return plan
    outputs, sinks = (tuple(replacements.get(r, r) for r in refs) for refs in (plan.outputs, plan.sinks))
    return Plan(tuple(steps), outputs, sinks)


def drop_dead(plan: Plan) -> Plan:
    """Removes steps that no output and no sink depends on. Sources are kept, because they have a state, and so are
    preserved operators.
    """
    needed = {r.step for r in (*plan.outputs, *plan.sinks)}
    for step in reversed(plan.steps):
        if step.id in needed or isinstance(step.op, SourceOperator) or step.op.preserved:
            needed |= {r.step for r in step.needs} | {step.id}
    return (
        plan
        if len(needed) == len(plan.steps)
        else dataclasses.replace(plan, steps=tuple(s for s in plan.steps if s.id in needed))
    )


# Note [Absorbing merges]
# `if`, `elif` and `else` make nested merges, one for each `if`, and each would copy all samples. If the only use of a
# merge is another merge, the outer one absorbs it: it selects each sample from all branches, and copies it once,
# directly from its branch. Any operator may absorb the one before it in this way (`Operator.absorb`). The inner one
# must have no other use, and must run on the same side and in the same phase, because the programs of a phase are
# determined together.
def absorb(plan: Plan) -> Plan:
    """Lets steps absorb the steps before them that have no other use, see Note [Absorbing merges]. `drop_dead` removes
    the absorbed ones.
    """
    num_uses = collections.Counter(r.step for s in plan.steps for r in s.needs)
    num_uses.update(r.step for r in (*plan.outputs, *plan.sinks))
    steps: dict[int, Step] = {}
    for step in plan.steps:
        i = 0
        while step.known and i < len(step.inputs):
            inner = steps[step.inputs[i].step]
            # The programs of an earlier phase are fixed before the steps of this one are known.
            in_same_phase = inner.known and (inner.stage, inner.phase) == (step.stage, step.phase)
            has_no_other_use = in_same_phase and num_uses[inner.id] == 1 and inner.op.num_outputs == 1
            op = step.op.absorb(i, inner.op) if has_no_other_use else None  # None: it can't absorb this one
            if op is None:
                i += 1
            else:  # the inputs of the inner step take its place, and may be absorbed in turn
                step = dataclasses.replace(step, op=op, inputs=(*step.inputs[:i], *inner.inputs, *step.inputs[i + 1 :]))
        steps[step.id] = step
    is_unchanged = all(a is b for a, b in zip(steps.values(), plan.steps, strict=True))
    return plan if is_unchanged else dataclasses.replace(plan, steps=tuple(steps.values()))


# Note [The chain]
# If a photo is decoded, cropped, resized and normalised by one operator after the other, main memory holds each
# intermediate image. So steps on the CPU whose image only one other step reads become one native call, which processes
# image by image, and row by row where possible; intermediate results stay in the cache. The last one may make patches
# of the image (`patchify`). A step that reads only the shape of an image does not count as its reader, because the host
# knows shapes. The steps remain steps of the plan with their own set-up, status and statistics, but their image has no
# buffer. The native part is in `ffi/chain`.
# On a GPU, where each kernel works on all images at once, the kernel of a resize or of a warp makes the window that
# alone reads its images (`makes_windows`): a crop, mirrored and normalised. All other kernels are launched one by one;
# for a decoder and a window see Note [Parts of images].
def fused(plan: Plan, kernels: frozenset[str]) -> Plan:
    """Marks the steps whose image only one other step reads, and which can be one native call with that step. See Note
    [The chain].

    Args:
      kernels: the native kernels of the accelerator.
    """
    # Steps that read only the shapes of an image, which the host has, do not need its data.
    num_uses = collections.Counter(
        r for s in plan.steps for i, r in enumerate(s.needs) if i >= len(s.inputs) or not s.reads_shape_only(i)
    )
    num_uses.update((*plan.outputs, *plan.sinks))
    steps = {s.id: s for s in plan.steps}
    num_fused_before = collections.Counter[int]()  # by step: stages before it in its call
    for step in plan.steps:
        first = plan.maker(step.inputs[0]) if step.inputs else None
        if first is None or not (
            _chained_on_cpu(plan, first, step, kernels) or _chained_on_device(plan, first, step, kernels)
        ):
            continue
        run_together = (first.phase, first.presence) == (step.phase, step.presence)
        # A call has at most MOST_STAGES stages, of which `step` is one.
        if run_together and num_uses[step.inputs[0]] == 1 and num_fused_before[first.id] < MOST_STAGES - 1:
            steps[first.id] = dataclasses.replace(first, fused=True)
            num_fused_before[step.id] = num_fused_before[first.id] + 1
    is_unchanged = all(a is b for a, b in zip(steps.values(), plan.steps, strict=True))
    return plan if is_unchanged else dataclasses.replace(plan, steps=tuple(steps.values()))


# Note [Parts of images]
# A decoder of an accelerator makes whole images, and a crop behind it throws most pixels away. If nothing else reads
# the images, the decoder makes only the part that the crop reads, as `decoders.image_crop` does. That part depends on
# the crop's arguments and on the size of the image, and the host must know it when it prepares the files. So the
# arguments also become inputs of the step that parses the headers. The image is made whole where a program makes the
# arguments, because the steps are in different phases, or where it has another reader, which includes arguments that
# depend on its size. The crop's own step remains. It reports the samples that fail in it, and does the rest of its
# work; if it only cuts, there is none. On the CPU, the chain has the same effect.
#
# With `dct_scaling`, the size of a resize decides in the same way at which scale the files are decoded (`informed`). No
# operator but the parser changes then.
def narrowed(plan: Plan, kernels: frozenset[str]) -> Plan:
    """Lets an accelerator's decoders make only a part of an image: the part that its only reader needs.

    See Note [Parts of images].

    Args:
      kernels: the native kernels of the accelerator.
    """

    def rewrite(parser: Step, decoder: Step, window: Step) -> tuple[Operator, Operator, Operator] | None:
        if not _on_device(decoder, kernels) or not _on_device(window, kernels):
            return None
        assert isinstance(decoder.op, StageOperator)
        return decoder.op.narrowed(parser.op, window.op, decoder.specs[0], window.specs[0])

    return _with_arguments_in_parsers(plan, rewrite)


def informed(plan: Plan) -> Plan:
    """Lets the steps that parse headers read the arguments of a resize behind the decoder, which chooses the scale by
    them. See Note [Parts of images].
    """

    def rewrite(parser: Step, decoder: Step, resize: Step) -> tuple[Operator, Operator, Operator] | None:
        assert isinstance(decoder.op, StageOperator)
        op = decoder.op.informed(parser.op, resize.op)
        return None if op is None else (op, decoder.op, resize.op)

    return _with_arguments_in_parsers(plan, rewrite)


def _with_arguments_in_parsers(
    plan: Plan, rewrite: Callable[[Step, Step, Step], tuple[Operator, Operator, Operator] | None]
) -> Plan:
    """Rewrites the pattern parser -> decoder -> reader, so that the parser gets the arguments of the reader.

    Args:
      rewrite: returns the operators that replace those of the three steps; None: the steps stay as they are.
    """
    readers: dict[int, set[int]] = collections.defaultdict(set)
    for step in plan.steps:
        for r in step.needs:
            readers[r.step].add(step.id)
    output_steps = {r.step for r in (*plan.outputs, *plan.sinks)}
    steps: dict[int, Step] = {}

    def spec(ref: Ref) -> Spec:
        return steps[ref.step].specs[ref.index]

    def is_only_reader(reader: Step, maker: Step) -> bool:
        """Whether only `reader` reads the outputs of `maker`, in the same phase and for the same samples."""
        run_together = maker.known and reader.known and (maker.phase, maker.presence) == (reader.phase, reader.presence)
        return run_together and maker.id not in output_steps and readers[maker.id] == {reader.id}

    # The step that parses the headers, the one that makes the image, and the only one that reads it.
    for step in plan.steps:
        reader = steps[step.id] = step
        decoder = plan.maker(reader.inputs[0]) if reader.inputs else reader
        if not isinstance(decoder.op, StageOperator) or decoder is reader or not decoder.inputs:
            continue
        parser = plan.maker(decoder.inputs[0])
        if (
            decoder.inputs != parser.outputs
            or not is_only_reader(decoder, parser)
            or not is_only_reader(reader, decoder)
        ):
            continue
        ops = rewrite(parser, decoder, reader)
        if ops is None:
            continue
        parser_op, decoder_op, reader_op = ops
        # Parser and decoder move behind the steps that make the arguments. Nothing in between reads them.
        del steps[parser.id], steps[decoder.id], steps[reader.id]
        decoder_inputs, arguments = parser.outputs, reader.inputs[1:]
        parser = _with_operator(parser, parser_op, (*parser.inputs, *arguments), spec)
        steps[parser.id] = parser
        decoder = _with_operator(decoder, decoder_op, decoder_inputs, spec)
        steps[decoder.id] = decoder
        # The parser may have a further output, for the reader.
        reader_inputs = (*decoder.outputs, *parser.outputs[len(decoder_inputs) :], *arguments)
        steps[reader.id] = _with_operator(reader, reader_op, reader_inputs, spec)
    is_unchanged = all(a is b for a, b in zip(steps.values(), plan.steps, strict=True))
    return plan if is_unchanged else dataclasses.replace(plan, steps=tuple(steps.values()))


def _with_operator(step: Step, op: Operator, inputs: tuple[Ref, ...], spec: Callable[[Ref], Spec]) -> Step:
    """Returns a step with another operator and its inputs."""
    return dataclasses.replace(step, op=op, inputs=inputs, specs=tuple(op.infer(*map(spec, inputs))))


def _chained_on_cpu(plan: Plan, first: Step, step: Step, kernels: frozenset[str]) -> bool:
    """Whether the CPU can run two steps in one native call. `first` makes the image that `step` reads."""
    return _is_stage(plan, first, kernels) and _is_stage(plan, step, kernels, is_last=True)


def _chained_on_device(plan: Plan, first: Step, step: Step, kernels: frozenset[str]) -> bool:
    """Whether the accelerator can run two steps in one native call: a resize or a warp, and the window that reads its
    image.
    """
    for s in (first, step):
        if not isinstance(s.op, StageOperator) or s.op.num_outputs > 1 or not s.known or s.stage != "device":
            return False
    assert isinstance(first.op, StageOperator)
    assert isinstance(step.op, StageOperator)
    image, (intermediate,), (out,) = plan.spec(first.inputs[0]), first.specs, step.specs
    on_device = {"chain", first.op.kernel, step.op.kernel} <= kernels
    return on_device and first.op.makes_windows(image, intermediate) and step.op.is_made_in_place(intermediate, out)


def _is_stage(plan: Plan, step: Step, kernels: frozenset[str], is_last: bool = False) -> bool:
    """Whether a step's call can be part of a fused call: on the CPU, from a value of three axes or a file, to a value
    of three axes.

    Args:
      is_last: whether it may also be a stage that can only be the last one.
    """
    op = step.op
    if not isinstance(op, StageOperator) or not step.known or op.num_outputs > 1:
        return False
    # The kernel "decode" reads a file, which has one axis, and "patchify" makes rows of patches.
    makes_image = step.specs[0].ndim == 3 or (is_last and op.kernel == "patchify")
    if not makes_image or (plan.spec(step.inputs[0]).ndim != 3 and op.kernel != "decode"):
        return False
    # A step for an accelerator without its kernel runs on the CPU, too.
    return step.stage == "cpu" or (step.stage == "device" and op.kernel not in kernels)


# Note [The cut]
# An accelerator without native kernels, such as a TPU, is fed by the host, and few bytes should cross the link. Floats
# are four times as large as the pixels that they are made of. So the steps that make them are divided: the host
# decodes, resizes and cuts out, and the accelerator normalises (`NativeOperator.divided`). A value that is on the
# accelerator already stays there if the step can also be done in JAX's own operations (`NativeOperator.portable`).
# Otherwise it would cross the link twice.
#
# The output of a reader may have a smaller form, too: the planes that a video codec makes are half as large as the
# frames. If only an accelerator reads the output, with native kernels or without, it gets that form (`Source.compact`),
# and makes the output of it.
def cut(plan: Plan, kernels: frozenset[str], placed: frozenset[Ref]) -> Plan:
    """Moves the place where values go from the host to the accelerator, so that few bytes cross. See Note [The cut].

    Args:
      kernels: the native kernels of the accelerator.
      placed: the outputs that are put on the accelerator in any case.
    """
    steps: dict[int, Step] = {}

    for step in plan.steps:
        op = step.op
        # A step for the CPU counts if its result is an output on the accelerator, and no other step reads it.
        is_for_device = step.stage == "device" or (step.stage == "cpu" and step.outputs[0] in placed - plan.read)
        if (
            step.known
            and is_for_device
            and isinstance(op, NativeOperator)
            and op.kernel not in kernels
            and step.inputs
            and op.num_outputs == 1
        ):
            spec, (out,) = plan.spec(step.inputs[0]), step.specs
            if _on_device(steps[step.inputs[0].step], kernels):
                step = dataclasses.replace(step, op=op.portable(spec, out) or op)
            elif (parts := op.divided(spec, out)) is not None:
                host_op, device_op = parts
                (intermediate,) = host_op.infer(*map(plan.spec, step.inputs))
                # Only then fewer bytes cross the link.
                if intermediate.shape is not None and out.shape is not None and _nbytes(intermediate) < _nbytes(out):
                    node = _added_node(step.node, "host")
                    first = dataclasses.replace(step, node=node, op=host_op, specs=(intermediate,))
                    steps[first.id] = first
                    inputs = (first.outputs[0], *step.inputs[1:])
                    step = dataclasses.replace(step, op=device_op, inputs=inputs, stage="device")
        steps[step.id] = step
    is_unchanged = len(steps) == len(plan.steps) and all(
        a is b for a, b in zip(steps.values(), plan.steps, strict=True)
    )
    return plan if is_unchanged else dataclasses.replace(plan, steps=tuple(steps.values()))


def compact(plan: Plan, kernels: frozenset[str], placed: frozenset[Ref], sources: Mapping[int, Source]) -> Plan:
    """Lets sources give their first output in a smaller form, if only the accelerator reads it. See Note [The cut].

    Args:
      kernels: the native kernels of the accelerator.
      placed: the outputs that are put on the accelerator in any case.
      sources: by the id of their step.
    """
    steps, replacements = list[Step](), dict[Ref, Ref]()
    for step in plan.steps:
        source = sources.get(step.id)
        form = source.compact() if source is not None and step.known and step.phase == 0 else None
        if form is not None and _only_on_device(plan, step.outputs[0], kernels, placed):
            compact_spec, op = form
            # A new step on the device makes the output of the smaller form.
            node = _added_node(step.node, "pixels")
            replacements[step.outputs[0]] = Ref(node.id, 0)
            steps.append(dataclasses.replace(step, specs=(compact_spec, *step.specs[1:])))
            steps.append(Step(node, op, (step.outputs[0],), stage="device", phase=0, specs=step.specs[:1]))
        else:
            inputs = tuple(replacements.get(r, r) for r in step.inputs)
            steps.append(dataclasses.replace(step, inputs=inputs) if replacements else step)
    outputs = tuple(replacements.get(r, r) for r in plan.outputs)
    return Plan(tuple(steps), outputs, plan.sinks) if replacements else plan


def _only_on_device(plan: Plan, ref: Ref, kernels: frozenset[str], placed: frozenset[Ref]) -> bool:
    """Whether all steps that read a value, or a copy of it, run on the accelerator, and no output is on the host.

    Args:
      kernels: the native kernels of the accelerator.
      placed: the outputs that are put on the accelerator in any case.
    """
    predicates = {r for s in plan.steps for r in s.needs[len(s.inputs) :]}  # `needs`: the inputs, then the predicates
    if (
        ref in plan.sinks
        or ref in predicates
        or (ref in plan.outputs and ref not in placed and plan.maker(ref).stage != "device")
    ):
        return False
    for step in (s for s in plan.steps if ref in s.inputs):
        if (
            not step.known
            or not _on_device(step, kernels)
            or any(step.needs_on_host(i) for i, r in enumerate(step.inputs) if r == ref)
        ):
            return False
        if step.op.is_identity(*map(plan.spec, step.inputs)) and not _only_on_device(
            plan, step.outputs[0], kernels, placed
        ):
            return False
    return True


def _on_device(step: Step, kernels: frozenset[str]) -> bool:
    """Whether a step runs on the accelerator, which has these kernels."""
    return step.stage == "device" and not (isinstance(step.op, NativeOperator) and step.op.kernel not in kernels)


def _added_node(node: Node, label: str) -> Node:
    """Returns a node for a step that the plan adds to the step of a node. `label`: added to the name."""
    node = copy.copy(node)
    node.id, node.name = -1 - node.id, f"{node.name} ({label})"  # the nodes of graphs have no negative numbers
    return node


def _nbytes(spec: Spec) -> int:
    """Bytes of a sample of static shape."""
    return spec.dtype.itemsize * math.prod(spec.shape or ())


def look_ahead(plan: Plan) -> Plan:
    """Tells steps, beginning with the last ones, which operators read their outputs (`Operator.ahead_of`): an operator
    may then run in another form, which makes what these need.
    """
    readers: dict[int, dict[int, Step]] = collections.defaultdict(dict)
    # Steps whose values are also read otherwise than by operators.
    has_other_use = {r.step for r in (*plan.outputs, *plan.sinks)} | {
        r.step for s in plan.steps if s.presence for r in s.presence.predicates
    }
    steps: dict[int, Step] = {}
    for step in reversed(plan.steps):
        readers_of_step = list(readers[step.id].values())
        if step.known and step.id not in has_other_use and all(s.known for s in readers_of_step):
            op = step.op.ahead_of([s.op for s in readers_of_step])
            if op != step.op:
                step = dataclasses.replace(step, op=op)
        steps[step.id] = step
        for r in step.inputs:
            readers[r.step][step.id] = step
    if all(steps[s.id] is s for s in plan.steps):
        return plan
    return dataclasses.replace(plan, steps=tuple(steps[s.id] for s in plan.steps))


PASSES: tuple[Callable[[Plan], Plan], ...] = (bypass_identities, absorb, drop_dead, look_ahead)


def simplified(plan: Plan) -> Plan:
    """The plan after all passes."""
    for simplify in PASSES:
        plan = simplify(plan)
    return plan
