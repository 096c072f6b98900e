# SPDX-License-Identifier: Apache-2.0
"""Cases of QuantizeLinear and DequantizeLinear, and of other operators as they stand in quantized networks.

The scales of inputs and weights are small multiples of powers of two, and weights have five bits: sums are exact in float32 in any
order, so that a code at the border of two cannot fall on another side on another processor. The scales that are tested are no such
numbers.
"""
import numpy as np
from judge import Case, model, pixels, tensor
from onnx import TensorProto
from onnx.helper import make_node as node

OPERATORS = {"QuantizeLinear", "DequantizeLinear"}
EXEMPT = {}

SHAPE = (3, 8, 8)
X = pixels(SHAPE)
X_SCALE = 5 / 1024
MID = 0.0117  # of the codes between the two convolutions
CHANNELS = np.array([5, 7, 6, 5, 3, 7], np.float32) / 256  # scales of the first one's weights


def codes(*shape, seed=3):
    return np.random.default_rng(seed).integers(-15, 16, shape).astype(np.int8)


def pair(x, y, scale, zero=None, dtype=np.uint8, given=(True, True), **attributes):
    """QuantizeLinear and DequantizeLinear from x to y. `given`: whether each has the zero point; `q` and `dq`: their attributes."""
    q = node("QuantizeLinear", [x, f"{y}.s"] + [f"{y}.z"] * given[0], [f"{y}.q"], name=f"{y}.Q", **attributes.get("q", {}))
    dq = node("DequantizeLinear", [f"{y}.q", f"{y}.s"] + [f"{y}.z"] * given[1], [y], name=f"{y}.D", **attributes.get("dq", {}))
    return [q, dq], [tensor(f"{y}.s", scale)] + ([tensor(f"{y}.z", zero, dtype)] if any(given) else [])


def weights(name, values, scale, zero=None, **attributes):
    """A DequantizeLinear of int8 codes."""
    inputs = [f"{name}.q", f"{name}.s"] + ([] if zero is None else [f"{name}.z"])
    tensors = [tensor(f"{name}.q", values, values.dtype), tensor(f"{name}.s", scale)]
    if zero is not None:
        tensors.append(tensor(f"{name}.z", zero, values.dtype))
    return [node("DequantizeLinear", inputs, [name], **attributes)], tensors


def network(*parts, output="y", opset=13, shape=SHAPE):
    """Of (nodes, tensors), in this order."""
    return model([n for nodes, _ in parts for n in nodes], [t for _, tensors in parts for t in tensors], output, shape, opset)


IMAGE = pair("x", "image", X_SCALE, 0)
FIRST = weights("w1", codes(6, 3, 3, 3), CHANNELS, np.zeros(6), axis=0)
OLD_FIRST = weights("w1", codes(6, 3, 3, 3), 5 / 256, 0)  # before opset 13 there is one scale a tensor
BIAS = [], [tensor("b1", np.arange(-3, 3) * 40 * X_SCALE * CHANNELS)]
CONV1 = [node("Conv", ["image", "w1", "b1"], ["a"], name="conv1")], []
SECOND = weights("w2", codes(4, 6, 3, 3, seed=4), 3 / 128, 0)
CONV2 = [node("Conv", ["m", "w2"], ["y"], name="conv2")], []


def between(mid, opset=13):
    """Two convolutions, and `mid` from "a" to "m" between them."""
    return network(IMAGE, FIRST if opset >= 13 else OLD_FIRST, BIAS, CONV1, mid, SECOND, CONV2, opset=opset)


def case(name, graph, **more):
    return Case(name, graph, X, quantized=True, **more)


def activations():
    def mid(name, *arguments, opset=13, differs_from="", refused="", **keywords):
        return case(name, between(pair("a", "m", MID, *arguments, **keywords), opset), differs_from=differs_from, refused=refused)

    for opset in (11, 13, 19, 21, 23):
        yield mid(f"codes_u8_{opset}", 0, opset=opset)
        yield mid(f"codes_u8_zero_120_{opset}", 120, opset=opset, differs_from=f"codes_u8_{opset}")
        yield mid(f"codes_s8_{opset}", 0, np.int8, opset=opset, differs_from=f"codes_u8_{opset}")
        yield mid(f"codes_s8_zero_-100_{opset}", -100, np.int8, opset=opset, differs_from=f"codes_s8_{opset}")
        yield mid(f"neither_has_a_zero_point_{opset}", given=(False, False), opset=opset, differs_from=f"codes_s8_{opset}")
        yield mid(f"q_alone_has_a_zero_point_{opset}", 0, np.int8, given=(True, False), opset=opset, differs_from=f"codes_u8_{opset}")
        yield mid(f"dq_alone_has_a_zero_point_{opset}", 0, given=(False, True), opset=opset, differs_from=f"codes_s8_{opset}")
        yield mid(f"zero_points_differ_{opset}", 120, given=(True, False), opset=opset,
                  refused="its scale 0.0117 and zero point 0 are not those of the QuantizeLinear before it, 0.0117 and 120")
    for opset in (13, 19, 21, 23):
        for axis in (-1, 0, 3):
            yield mid(f"axis_{axis}_{opset}", 120, q={"axis": axis}, dq={"axis": axis}, opset=opset)
    for opset in (19, 21, 23):
        for saturate in (0, 1):
            yield mid(f"saturate_{saturate}_{opset}", 0, np.int8, q={"saturate": saturate}, opset=opset)
    for opset in (21, 23):
        yield mid(f"block_size_0_{opset}", 120, q={"block_size": 0}, dq={"block_size": 0}, opset=opset)
        for name, dtype in (("s8", TensorProto.INT8), ("u8", TensorProto.UINT8), ("default", TensorProto.UNDEFINED)):
            like, other = ("s8", "u8") if name == "s8" else ("u8", "s8")
            yield mid(f"output_dtype_{name}_{opset}", given=(False, False), q={"output_dtype": dtype}, opset=opset,
                      differs_from=f"codes_{other}_{opset}")
            yield mid(f"output_dtype_{name}_and_zero_point_{opset}", 0, np.int8 if like == "s8" else np.uint8, q={"output_dtype": dtype},
                      opset=opset, differs_from=f"codes_{other}_{opset}")
        for name, dtype in (("INT16", TensorProto.INT16), ("INT4", TensorProto.INT4), ("FLOAT8E4M3FN", TensorProto.FLOAT8E4M3FN)):
            yield mid(f"output_dtype_{name}_{opset}", given=(False, False), q={"output_dtype": dtype}, opset=opset,
                      refused=f"its codes are {name}; octet's are int8 or uint8")
        yield mid(f"output_dtype_against_zero_point_{opset}", 0, q={"output_dtype": TensorProto.INT8}, opset=opset,
                  refused="output_dtype INT8, and a zero point of type UINT8")
    for name, dtype in (("default", TensorProto.UNDEFINED), ("float", TensorProto.FLOAT)):
        yield mid(f"precision_{name}", 120, q={"precision": dtype}, opset=23)
        yield mid(f"dq_output_dtype_{name}", 120, dq={"output_dtype": dtype}, opset=23)
    yield mid("precision_half", 120, q={"precision": TensorProto.FLOAT16}, opset=23,
              refused="precision FLOAT16; octet divides by the scale in float32")
    yield mid("dq_output_dtype_half", 120, dq={"output_dtype": TensorProto.FLOAT16}, opset=23,
              refused="output_dtype FLOAT16; octet's reals are float32")
    yield case("scale_of_one_element", between(pair("a", "m", [MID], [120])))
    again = [node("DequantizeLinear", ["m.q", "m.s", "m.z"], ["m2"]), node("Conv", ["m2", "w2"], ["z"])]
    total = pair("y", "yq", 0.0317, 90), pair("z", "zq", 0.0291, 100), ([node("Add", ["yq", "zq"], ["sum"])], [])
    yield case("one_code_of_two_readers", network(IMAGE, FIRST, BIAS, CONV1, pair("a", "m", MID, 120), SECOND, CONV2, (again, []), *total,
                                                  output="sum"))


def of_weights():
    head = [node("Flatten", ["image"], ["row"]), node("Gemm", ["row", "w"], ["y"], name="fc")], []
    rows = [node("Flatten", ["image"], ["row"]), node("Gemm", ["row", "w"], ["y"], name="fc", transB=1)], []
    columns, scales = codes(192, 6), np.linspace(0.5, 2, 6) / 100

    def conv(name, part, opset, **more):
        return case(name, network(IMAGE, part, BIAS, CONV1, opset=opset, output="a"), **more)

    for opset in (13, 19, 21, 23):
        yield conv(f"weights_axis_0_{opset}", weights("w1", codes(6, 3, 3, 3), CHANNELS, np.zeros(6), axis=0), opset)
        yield conv(f"weights_axis_-4_{opset}", weights("w1", codes(6, 3, 3, 3), CHANNELS, np.zeros(6), axis=-4), opset)
        yield conv(f"weights_without_zero_point_{opset}", weights("w1", codes(6, 3, 3, 3), CHANNELS, axis=0), opset)
        yield conv(f"weights_zero_points_{opset}", weights("w1", codes(6, 3, 3, 3), CHANNELS, np.arange(6) - 3, axis=0), opset,
                   differs_from=f"weights_axis_0_{opset}")
        yield conv(f"weights_u8_{opset}", weights("w1", (codes(6, 3, 3, 3) + np.int16(128)).astype(np.uint8), 5 / 256, 117), opset)
        positive = (codes(6, 3, 3, 3) + np.int16(15)).astype(np.uint8)
        yield conv(f"weights_u8_without_zero_point_{opset}", weights("w1", positive, CHANNELS, axis=0), opset)
        yield case(f"columns_axis_1_{opset}", network(IMAGE, weights("w", columns, scales, axis=1), head, opset=opset))
        yield case(f"columns_axis_left_out_{opset}", network(IMAGE, weights("w", columns, scales), head, opset=opset))
        yield case(f"rows_axis_0_{opset}", network(IMAGE, weights("w", columns.T.copy(), scales, axis=0), rows, opset=opset))
        yield case(f"rows_axis_left_out_{opset}", network(IMAGE, weights("w", codes(3, 192), np.ones(192)), rows, opset=opset),
                   refused="scales of weights along axis 1; expected 0, the outputs")
    for opset in (21, 23):
        blocks = weights("w", columns, np.tile(scales, (3, 1)), axis=0, block_size=64)
        yield case(f"columns_of_blocks_{opset}", network(IMAGE, blocks, head, opset=opset), refused="scales of blocks")

    reals = np.random.default_rng(6).uniform(-0.3, 0.3, (6, 3, 3, 3)).astype(np.float32)

    def quantized(name, opset, zero, dtype=np.int8, given=(True, True), scale=CHANNELS, axis=True, **q):
        along = {"axis": 0} if axis else {}
        part = pair("r", "w1", scale, zero, dtype, given, q={**along, **q}, dq=along)
        return conv(name, (part[0], part[1] + [tensor("r", reals)]), opset)

    for opset in (13, 19, 21, 23):
        yield quantized(f"reals_s8_{opset}", opset, np.zeros(6))
        yield quantized(f"reals_u8_{opset}", opset, np.full(6, 128), np.uint8)
        yield quantized(f"reals_by_tensor_{opset}", opset, 0, scale=7 / 512, axis=False)
        yield quantized(f"reals_without_zero_point_{opset}", opset, None, given=(False, False))
        yield quantized(f"reals_q_alone_has_a_zero_point_{opset}", opset, np.zeros(6), given=(True, False))
    for opset in (21, 23):
        yield quantized(f"reals_output_dtype_s8_{opset}", opset, None, given=(False, False), output_dtype=TensorProto.INT8)
        yield quantized(f"reals_output_dtype_u8_{opset}", opset, None, given=(False, False), output_dtype=TensorProto.UINT8)
        yield quantized(f"reals_output_dtype_and_zero_point_{opset}", opset, np.zeros(6), output_dtype=TensorProto.INT8)


def cases():
    yield from activations()
    yield from of_weights()
