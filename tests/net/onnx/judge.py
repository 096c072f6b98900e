# SPDX-License-Identifier: Apache-2.0
"""Small ONNX models whose outputs octet, ONNX Runtime and onnx.reference give: what optional_inputs.py and its lists of cases are made of.

A case is a model and its input. octet's outputs (by the program onnx_logits) are held against ONNX Runtime's without graph
optimizations, and those against onnx.reference's, so that no single reading of the specification decides.
"""
import collections
import dataclasses
import pathlib
import re
import subprocess

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

OPSETS = range(7, 24)  # that octet reads
EQUAL = 1e-5  # of the largest output: sums of another order


@dataclasses.dataclass
class Case:
    """A model, what octet makes of it, and what it must not give by mistake."""
    name: str
    model: onnx.ModelProto
    x: np.ndarray  # float32 [N, C, H, W]; of a quantized network pixels / 255
    quantized: bool = False  # read as a quantized network, and run by the engine reference
    refused: str = ""  # what octet's message says where it refuses the model; "": it is imported
    differs_from: str = ""  # name of a case whose outputs are not this one's, by a hundred times the tolerance
    tolerance: float = EQUAL  # of the largest output
    reference_fault: str = ""  # why onnx.reference is not asked
    turned: bool = False  # the model takes x as [N, H, W, C]

    def feed(self):
        return {"x": np.ascontiguousarray(self.x.transpose(0, 2, 3, 1)) if self.turned else self.x}


def tensor(name, values, dtype=np.float32):
    """An initializer."""
    return numpy_helper.from_array(np.asarray(values, dtype=dtype), name)


def model(nodes, tensors, outputs, shape, opset=17, batch="N"):
    """A model of one input "x" [batch, *shape] in float32; `outputs`: a name, or names."""
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [batch, *shape])
    names = [outputs] if isinstance(outputs, str) else outputs
    graph = helper.make_graph(nodes, "case", [x], [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in names], tensors)
    ir = next(ir for ir, *_, last in ((7, 12), (8, 18), (9, 20), (10, 22), (11, 23)) if opset <= last)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=ir)


def pixels(shape, images=2, seed=1):
    """float32 [images, *shape] of 0..1 in steps of 1 / 255, as a quantized network sees pictures."""
    return np.random.default_rng(seed).integers(0, 256, (images, *shape)).astype(np.float32) / np.float32(255)


def noise(shape, images=2, seed=1):
    """Normal float32 [images, *shape], for float networks."""
    return np.random.default_rng(seed).standard_normal((images, *shape), np.float32)


def flat(outputs):
    return np.concatenate([np.asarray(output, np.float32).reshape(-1) for output in outputs])


def by_onnxruntime(case):
    """All outputs, one behind the other."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    options.intra_op_num_threads = 1
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(case.model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return flat(session.run(None, case.feed()))


def by_reference(case):
    """The same, or None where onnx.reference has no implementation for an operator of this opset."""
    try:
        return flat(ReferenceEvaluator(case.model).run(None, case.feed()))
    except RuntimeError as error:
        if "No implementation" not in str(error):
            raise
        return None


def by_octet(program, folder, cases):
    """By case, all outputs one behind the other, or the message of a refusal. `folder`: empty, for the program's files."""
    folder = pathlib.Path(folder)
    stem = {case.name: f"{case.name}.qdq" if case.quantized else case.name for case in cases}
    for case in cases:
        (folder / f"{stem[case.name]}.onnx").write_bytes(case.model.SerializeToString())
        (folder / f"{stem[case.name]}.in").write_bytes(np.ascontiguousarray(case.x, np.float32).tobytes())
    subprocess.run([program, folder], check=True)
    answers = {}
    for case in cases:
        refusal = folder / f"{stem[case.name]}.error"
        answers[case.name] = refusal.read_text() if refusal.exists() else np.fromfile(folder / f"{stem[case.name]}.out", np.float32)
    return answers


def distance(a, b):
    """Largest difference, of the largest number of b; infinite for other sizes and for what is no number."""
    if a.shape != b.shape or not np.isfinite(a).all():
        return np.inf
    return np.abs(a - b).max() / max(np.abs(b).max(), 1e-9)


def faults(cases, answers):
    """A line for each case in which octet is wrong, or which could not show it."""
    twice = [name for name, count in collections.Counter(case.name for case in cases).items() if count > 1]
    found = [f"{name}: two cases have this name" for name in twice]
    judged = {}
    for case in cases:
        answer = answers[case.name]
        if case.refused:
            if not isinstance(answer, str):
                found.append(f"{case.name}: imported; expected a refusal with '{case.refused}'")
            elif case.refused not in answer:
                found.append(f"{case.name}: refused as '{answer}'; expected '{case.refused}'")
            continue
        expected = judged[case.name] = by_onnxruntime(case)
        other = None if case.reference_fault else by_reference(case)
        if other is not None and (off := distance(other, expected)) > case.tolerance:
            found.append(f"{case.name}: the judges differ by {off:.2g} of the largest output")
        if isinstance(answer, str):
            found.append(f"{case.name}: refused: {answer}")
        elif (off := distance(answer, expected)) > case.tolerance:
            found.append(f"{case.name}: {off:.2g} of the largest output away from ONNX Runtime")
    for case in cases:
        if not case.differs_from:
            continue
        if distance(judged[case.name], judged[case.differs_from]) < 100 * case.tolerance:
            found.append(f"{case.name}: its outputs are those of {case.differs_from}: the case shows nothing")
    return found


def options_of(operator):
    """Optional inputs and attributes that an operator has in any opset that octet reads."""
    names = set()
    for opset in OPSETS:
        try:
            schema = onnx.defs.get_schema(operator, opset, "")
        except onnx.defs.SchemaError:  # newer than this opset
            continue
        names |= {name for name, attribute in schema.attributes.items() if not attribute.required}
        names |= {given.name for given in schema.inputs if given.option == onnx.defs.OpSchema.FormalParameterOption.Optional}
    return names


def untested(cases, operators, exempt):
    """A line for each optional input or attribute that no case gives, or none leaves out. `exempt`: (operator, name) -> why."""
    seen = collections.defaultdict(set)
    for case in cases:
        opset = case.model.opset_import[0].version
        for node in case.model.graph.node:
            if node.domain:
                continue
            schema = onnx.defs.get_schema(node.op_type, opset, "")
            given = {attribute.name for attribute in node.attribute}
            given |= {declared.name for declared, name in zip(schema.inputs, node.input) if name}
            for name in set(schema.attributes) | {declared.name for declared in schema.inputs}:
                seen[node.op_type, name].add(name in given)
    found = [f"{operator}: '{name}' is exempt and no option of it" for operator, name in exempt if name not in options_of(operator)]
    for operator in sorted(operators):
        for name in sorted(options_of(operator)):
            for given, words in ((True, "gives"), (False, "leaves out")):
                if given not in seen[operator, name] and (operator, name) not in exempt:
                    found.append(f"{operator}: no case {words} '{name}'")
    return found


def operators_of(program, folder):
    """What octet imports, as its refusal of another operator lists it."""
    unknown = Case("unknown", model([helper.make_node("Acosh", ["x"], ["y"])], [], "y", (1, 1, 1)), noise((1, 1, 1)))
    return set(re.search(r"it imports ([\w, ]*)", by_octet(program, folder, [unknown])["unknown"])[1].split(", "))
