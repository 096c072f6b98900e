# SPDX-License-Identifier: Apache-2.0
"""Cases of forms that other exporters and older opsets write: images [N, H, W, C], rows of 1-D convolutions, bounds as Max and Min,
functions in pieces, Pads where no window follows; and quantized networks in QOperator form.
"""
import numpy as np
from judge import Case, model, noise, tensor
from onnx.helper import make_node as node
from optional_float import weights
from optional_plain import integers
from optional_qdq import CHANNELS, MID, X, X_SCALE, codes

OPERATORS = {"GlobalMaxPool", "LogSoftmax", "Max", "Min", "Neg", "Pow", "Sum", "Upsample"}
EXEMPT = {("LogSoftmax", "axis"): "it is left out, as a Softmax: octet's outputs are logits (operators_test.cpp)"}

SHAPE = (4, 9, 7)
LAST = 2 ** 63 - 1


def one(name, nodes, tensors=(), shape=SHAPE, opset=17, scale=2, **more):
    """A case whose output is "y"."""
    return Case(name, model(nodes, list(tensors), "y", shape, opset), scale * noise(more.pop("image", shape)), **more)


def scalars(**values):
    return [tensor(name, np.float32(value)) for name, value in values.items()]


def older_opsets():
    """What was an attribute before opset 10, 11 or 13, and Upsample, which Resize replaced."""
    filters = tensor("w", weights(6, 4, 3, 3))
    norm = [tensor(name, np.abs(weights(6, seed=seed)) + 0.1) for seed, name in enumerate(("g", "b", "m", "v"))]
    for opset in (7, 8, 9, 10):
        layers = [node("Conv", ["x", "w"], ["c"]), node("BatchNormalization", ["c", "g", "b", "m", "v"], ["n"]), node("Relu", ["n"], ["r"]),
                  node("GlobalAveragePool", ["r"], ["p"]), node("Flatten", ["p"], ["f"]), node("Gemm", ["f", "l", "c5"], ["y"], transB=1)]
        yield one(f"classifier_{opset}", layers, [filters, *norm, tensor("l", weights(5, 6)), tensor("c5", weights(5))], opset=opset,
                  reference_fault="has no BatchNormalization of these opsets that takes no momentum")
        for bounds in ({}, {"min": 0.0}, {"min": 0.0, "max": 6.0}, {"max": 0.7}):
            yield one(f"clip_{'_'.join(bounds)}_{opset}", [node("Clip", ["x"], ["c"], **bounds), node("Relu", ["c"], ["y"])], opset=opset, scale=4)
        for value in ({}, {"value": 0.0}):
            yield one(f"pad_{'_'.join(value)}_{opset}", [node("Pad", ["x"], ["p"], pads=[0, 0, 1, 0, 0, 0, 2, 1], **value),
                                                         node("Conv", ["p", "w"], ["y"])], [filters], opset=opset)
        yield one(f"pad_one_{opset}", [node("Pad", ["x"], ["p"], pads=[0, 0, 1, 1, 0, 0, 1, 1], value=1.0), node("Conv", ["p", "w"], ["y"])],
                  [filters], opset=opset, refused="pads with another value than 0")
    for opset in (7, 9):
        for axes in ({"axes": [1, 3]}, {}):
            first, last = ([1, 2], [3, 7]) if axes else ([0, 1], [LAST, 3])
            yield one(f"slice_{len(axes)}_{opset}", [node("Slice", ["x"], ["y"], starts=first, ends=last, **axes)], opset=opset)
        for mode in (None, "nearest", "linear"):
            given = {} if mode is None else {"mode": mode}
            scales = {"scales": [1.0, 1.0, 2.0, 3.0]} if opset == 7 else {}
            yield one(f"upsample_{mode}_{opset}", [node("Upsample", ["x"] + ["s"] * (opset > 7), ["y"], **given, **scales)],
                      [tensor("s", [1, 1, 2, 3])] if opset > 7 else [], opset=opset,
                      refused="mode 'linear', asymmetric, floor" if mode == "linear" else "", reference_fault="has no Upsample")
    yield one("resize_10", [node("Resize", ["x", "s"], ["y"])], [tensor("s", [1, 1, 2, 3])], opset=10, reference_fault="reads Resize of opset 11")
    for spatial in (1, 0):
        yield one(f"norm_spatial_{spatial}", [node("Conv", ["x", "w"], ["c"]), node("BatchNormalization", ["c", "g", "b", "m", "v"], ["y"], spatial=spatial)],
                  [filters, *norm], opset=7, refused="" if spatial else "spatial 0, statistics of each pixel",
                  reference_fault="has no BatchNormalization of these opsets that takes no momentum")


def channels_last():
    """As TensorFlow's converters write images."""
    first, back = node("Transpose", ["x"], ["t"], perm=[0, 3, 1, 2]), node("Transpose", ["c"], ["q"], perm=[0, 2, 3, 1])
    layer, filters = node("Conv", ["t", "w"], ["c"]), tensor("w", weights(6, 3, 3, 3))

    def nhwc(name, nodes, tensors=(), **more):
        return one(f"last_{name}", nodes, tensors, shape=(9, 8, 3), image=(3, 9, 8), turned=True, **more)

    yield nhwc("input", [first, node("Conv", ["t", "w"], ["y"])], [filters])
    scaled = [node("Mul", ["x", "k"], ["a"]), node("Sub", ["a", "m"], ["b"]), node("Transpose", ["b"], ["t"], perm=[0, 3, 1, 2]),
              node("Conv", ["t", "w"], ["y"], pads=[1, 1, 1, 1])]
    yield nhwc("input_scaled", scaled, [filters, *scalars(k=0.7), tensor("m", weights(3))])
    for name, flat in (("reshape", node("Reshape", ["q", "to"], ["f"])), ("flatten", node("Flatten", ["q"], ["f"]))):
        yield nhwc(name, [first, layer, back, flat, node("MatMul", ["f", "d"], ["m"]), node("Add", ["m", "b"], ["y"])],
                   [filters, integers("to", [-1, 252]), tensor("d", weights(252, 5)), tensor("b", weights(5))])
    yield nhwc("gemm", [first, layer, back, node("Relu", ["q"], ["r"]), node("Flatten", ["r"], ["f"]), node("Gemm", ["f", "d"], ["y"], transB=1)],
               [filters, tensor("d", weights(5, 252))])
    yield nhwc("mean", [first, layer, back, node("ReduceMean", ["q"], ["f"], axes=[1, 2], keepdims=0), node("MatMul", ["f", "d"], ["y"])],
               [filters, tensor("d", weights(6, 5))])
    gate = [node("ReduceMean", ["q"], ["p"], axes=[1, 2]), node("Sigmoid", ["p"], ["s"]), node("Mul", ["q", "s"], ["m"]), node("Add", ["m", "b"], ["a"]),
            node("Transpose", ["a"], ["y"], perm=[0, 3, 1, 2])]
    yield nhwc("gate", [first, layer, back, *gate], [filters, tensor("b", weights(6))])
    pixel = [first, layer, node("GlobalAveragePool", ["c"], ["p"]), node("Transpose", ["p"], ["q"], perm=[0, 2, 3, 1])]
    yield nhwc("one_pixel", [*pixel, node("Squeeze", ["q", "axes"], ["f"]), node("MatMul", ["f", "d"], ["y"])],
               [filters, integers("axes", [1, 2]), tensor("d", weights(6, 5))])
    shape = (4, 4, 4)  # in which both orders have one shape
    turn = node("Transpose", ["x"], ["t"], perm=[0, 2, 3, 1])
    yield one("last_and_first", [turn, node("Add", ["x", "t"], ["y"])], shape=shape, refused="joins [N, H, W, C] with [N, C, H, W]")
    yield one("last_to_a_conv", [turn, node("Conv", ["t", "w"], ["y"])], [tensor("w", weights(6, 4, 3, 3))], shape=shape,
              refused="is [N, H, W, C]; expected a Transpose to [N, C, H, W] before it")
    yield one("last_softmax_of_rows", [turn, node("Softmax", ["t"], ["y"], axis=1)], shape=shape, refused="not over the channels; expected axis 3")
    yield one("turned_otherwise", [node("Transpose", ["x"], ["y"], perm=[0, 1, 3, 2])], shape=shape, refused="expected [N, C, H, W] to [N, H, W, C] or back")


def rows():
    """1-D convolutions, whose rows are images of height 1, and vectors."""
    def row(name, nodes, tensors=(), shape=(4, 16), **more):
        return one(f"row_{name}", nodes, [tensor("w", weights(6, 4, 3)), *tensors], shape, **more)

    layer = node("Conv", ["x", "w"], ["c"])
    yield row("conv", [node("Conv", ["x", "w", "b"], ["y"], pads=[2, 1], strides=[2], dilations=[2], kernel_shape=[3])], [tensor("b", weights(6))])
    yield row("group", [node("Conv", ["x", "v"], ["y"], group=2, auto_pad="SAME_UPPER", strides=[2])], [tensor("v", weights(6, 2, 3))])
    norm = [tensor(name, np.abs(weights(6, seed=seed)) + 0.1) for seed, name in enumerate(("g", "b", "m", "v"))]
    yield row("norm", [layer, node("BatchNormalization", ["c", "g", "b", "m", "v"], ["n"]), node("Relu", ["n"], ["r"]),
                       node("MaxPool", ["r"], ["y"], kernel_shape=[3], strides=[2], pads=[1, 1])], norm)
    yield row("average", [layer, node("AveragePool", ["c"], ["a"], kernel_shape=[2], strides=[2]), node("GlobalAveragePool", ["a"], ["y"])])
    yield row("head", [layer, node("ReduceMean", ["c"], ["m"], axes=[-1], keepdims=0), node("MatMul", ["m", "d"], ["y"])], [tensor("d", weights(6, 5))])
    yield row("flatten", [layer, node("Flatten", ["c"], ["f"]), node("MatMul", ["f", "d"], ["y"])], [tensor("d", weights(84, 5))])
    yield row("up", [node("ConvTranspose", ["x", "v", "b"], ["y"], strides=[2], pads=[1, 1], output_padding=[1])],
              [tensor("v", weights(4, 3, 3)), tensor("b", weights(3))])
    yield row("sums", [node("Conv", ["x", "v"], ["c"], pads=[1, 1]), node("Add", ["x", "c"], ["a"]), node("Mul", ["a", "k"], ["m"]),
                       node("Concat", ["m", "x"], ["y"], axis=1)], [tensor("v", weights(4, 4, 3)), tensor("k", weights(4, 1))])
    yield row("pad", [node("Pad", ["x", "p"], ["q"]), node("Conv", ["q", "w"], ["y"])], [integers("p", [0, 0, 2, 0, 0, 1])])
    yield row("slice", [node("Slice", ["x", "one", "end", "two", "step"], ["y"])],
              [integers("one", [1]), integers("end", [LAST]), integers("two", [2]), integers("step", [2])])
    for mode, given in (("nearest", {"coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}), ("linear", {})):
        yield row(f"resize_{mode}", [node("Resize", ["x", "", "s"], ["y"], mode=mode, **given)], [tensor("s", [1, 1, 2])])
    yield row("of_an_image", [node("Squeeze", ["x", "two"], ["s"]), node("Conv", ["s", "w"], ["c"]), node("Unsqueeze", ["c", "two"], ["u"]),
                              node("Conv", ["u", "v"], ["y"])], [integers("two", [2]), tensor("v", weights(5, 6, 1, 3))], shape=(4, 1, 16))
    yield row("two_kernel_sizes", [node("Conv", ["x", "w"], ["y"], pads=[1, 1, 1, 1])], refused="pads [1, 1, 1, 1]; expected 2 numbers")
    yield one("vector", [node("Gemm", ["x", "d", "b"], ["h"]), node("Relu", ["h"], ["r"]), node("MatMul", ["r", "e"], ["y"])],
              [tensor("d", weights(12, 5)), tensor("b", weights(5)), tensor("e", weights(5, 3))], shape=(12,))


def bounds():
    numbers = scalars(zero=0, one=1, three=3, six=6, sixth=1 / 6, half=0.5, low=-0.7, high=1.9, twenty=20)
    clips = {"both": ["low", "high"], "0_to_20": ["zero", "twenty"], "below": ["low"], "above": ["", "high"], "0_to_1": ["zero", "one"]}
    for name, limits in clips.items():
        yield one(f"bounds_{name}", [node("Clip", ["x", *limits], ["y"])], numbers, scale=9 if name == "0_to_20" else 2)
    layer, filters = node("Conv", ["x", "w"], ["c"]), tensor("w", weights(4, 4, 1, 1))
    yield one("bounds_of_a_layer", [layer, node("Clip", ["c", "low", "high"], ["y"])], [filters, *numbers])
    yield one("bounds_of_a_layer_read_twice", [layer, node("Clip", ["c", "low", "high"], ["b"]), node("Add", ["b", "c"], ["y"])], [filters, *numbers])
    yield one("max_then_min", [node("Max", ["x", "zero"], ["m"]), node("Min", ["six", "m"], ["y"])], numbers, scale=5)
    yield one("relu_then_min", [node("Relu", ["x"], ["r"]), node("Min", ["r", "six"], ["y"])], numbers, scale=5)
    yield one("max_low", [node("Max", ["low", "x"], ["y"])], numbers)
    yield one("max_of_two", [node("Tanh", ["x"], ["t"]), node("Max", ["x", "t"], ["y"])], refused="of activations; expected one and a number")
    yield one("bounds_without_a_range", [node("Clip", ["x", "one", "zero"], ["y"])], numbers, refused="to 1 .. 0: no range")
    gate = [node("Mul", ["x", "sixth"], ["a"]), node("Add", ["a", "half"], ["b"]), node("Clip", ["b", "zero", "one"], ["g"])]
    yield one("gate_0_to_1", [*gate, node("Mul", ["x", "g"], ["y"])], numbers)
    shifted = [node("Add", ["x", "three"], ["a"]), node("Relu", ["a"], ["r"]), node("Min", ["r", "six"], ["g"])]
    yield one("gate_of_relu_and_min", [*shifted, node("Mul", ["x", "g"], ["m"]), node("Div", ["m", "six"], ["y"])], numbers)
    half = [tensor("root", 2 ** 0.5, np.float16), tensor("one", 1, np.float16), tensor("half", 0.5, np.float16)]
    gelu = [node("Cast", ["x"], ["h"], to=10), node("Div", ["h", "root"], ["d"]), node("Erf", ["d"], ["e"]), node("Add", ["e", "one"], ["a"]),
            node("Mul", ["h", "a"], ["m"]), node("Mul", ["m", "half"], ["z"]), node("Cast", ["z"], ["y"], to=1)]
    yield one("gelu_of_half", gelu, half, tolerance=2e-3)


def products():
    for name, exponent in (("2", 2.0), ("3", 3.0), ("1", 1.0)):
        yield one(f"pow_{name}", [node("Pow", ["x", "e"], ["p"]), node("Tanh", ["p"], ["y"])], scalars(e=exponent))
    yield one("pow_integer", [node("Pow", ["x", "e"], ["y"])], [integers("e", 2)])
    yield one("pow_root", [node("Pow", ["x", "e"], ["y"])], scalars(e=0.5), refused="expected the exponent 1, 2 or 3")
    yield one("neg", [node("Neg", ["x"], ["n"]), node("Relu", ["n"], ["y"])])
    yield one("sum_1", [node("Sum", ["x"], ["s"]), node("Relu", ["s"], ["y"])])
    yield one("sum_3", [node("Tanh", ["x"], ["t"]), node("Relu", ["x"], ["r"]), node("Sum", ["x", "t", "r"], ["y"])])
    for first, second in (("x", "s"), ("s", "x")):
        yield one(f"attention_of_pixels_{first}", [node("Conv", ["x", "w"], ["c"]), node("Sigmoid", ["c"], ["s"]), node("Mul", [first, second], ["y"])],
                  [tensor("w", weights(1, 4, 1, 1))])


def windows():
    pads, filters = integers("p", [0, 0, 1, 0, 0, 0, 1, 1]), tensor("w", weights(6, 4, 3, 3))
    pool = node("MaxPool", ["q"], ["y"], kernel_shape=[3, 3], strides=[2, 2])
    less, two = node("Sub", ["x", "two"], ["s"]), scalars(two=2)  # so that the zeros of a Pad are the maximum of some windows
    yield one("pad_pool", [less, node("Pad", ["s", "p"], ["q"]), pool], [pads, *two])
    inside = node("MaxPool", ["s"], ["y"], kernel_shape=[3, 3], strides=[2, 2], pads=[1, 0, 1, 1])
    yield one("pool_with_pads", [less, inside], two, differs_from="pad_pool",
              reference_fault="takes pads that differ from side to side in another order")
    yield one("pad_relu_pool", [less, node("Relu", ["s"], ["r"]), node("Pad", ["r", "p"], ["q"]), pool], [pads, *two], differs_from="pad_pool")
    yield one("pad_relu_conv", [node("Pad", ["x", "p"], ["q"]), node("Relu", ["q"], ["r"]), node("Conv", ["r", "w"], ["y"])], [pads, filters])
    yield one("pad_twice", [node("Pad", ["x", "p"], ["q"]), node("Pad", ["q", "p"], ["r"]), node("Conv", ["r", "w"], ["y"])], [pads, filters])
    both = [node("Conv", ["q", "w"], ["a"]), node("AveragePool", ["q"], ["b"], kernel_shape=[3, 3]), node("Concat", ["a", "b"], ["y"], axis=1)]
    yield one("pad_for_two", [node("Pad", ["x", "p"], ["q"]), *both], [pads, filters])
    yield one("global_max", [node("GlobalMaxPool", ["x"], ["y"])])
    flat = [node("Reshape", ["x", "to"], ["r"]), node("ReduceMean", ["r"], ["y"], axes=[2])]
    yield one("mean_of_pixels_in_a_row", flat, [integers("to", [0, 4, -1])])

    def up(name, shape, kernel=2, reference_fault="", **attributes):
        return one(f"up_{name}", [node("ConvTranspose", ["x", "w", "b"], ["y"], strides=[2, 2], **attributes)],
                   [tensor("w", weights(*shape, kernel, kernel)), tensor("b", weights(shape[1] * attributes.get("group", 1)))],
                   reference_fault=reference_fault)

    yield up("depthwise", (4, 1), 4, pads=[1, 1, 1, 1], group=4, reference_fault="knows one group")
    yield up("groups", (4, 3), 2, group=2, reference_fault="knows one group")
    yield up("same_lower", (4, 3), 3, auto_pad="SAME_LOWER")
    yield up("same_upper", (4, 3), 3, auto_pad="SAME_UPPER")
    yield up("output_shape", (4, 3), 4, output_shape=[18, 14], reference_fault="does not find the pads")


def picks():
    for order in ([2, 1, 0], [0, 1], [3, 3, 0, 1], [-1]):
        yield one(f"gather_channels_{order}", [node("Gather", ["x", "i"], ["y"], axis=1)], [integers("i", order)])
    yield one("gather_rows", [node("Gather", ["x", "i"], ["y"], axis=2)], [integers("i", [1])], refused="expected a row of channels, axis 1")
    steps = [integers("first", [0]), integers("last", [LAST]), integers("axis", [1]), integers("step", [3])]
    yield one("slice_channels_in_3", [node("Slice", ["x", "first", "last", "axis", "step"], ["y"])], steps)

    def smaller(name, factor, shape=(4, 6, 8), refused="", **attributes):
        return one(f"smaller_{name}", [node("Resize", ["x", "", "s"], ["y"], **attributes)], [tensor("s", [1, 1, *factor])], shape, refused=refused,
                   opset=19)

    asymmetric = {"mode": "nearest", "coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}
    yield smaller("nearest", (0.5, 0.25), **asymmetric)
    yield smaller("nearest_of_odd", (0.5, 0.5), (4, 5, 8), "by 0.5 x 0.5; expected integers", **asymmetric)
    yield smaller("nearest_half_pixel", (0.5, 0.5), refused="by 0.5 x 0.5; expected integers", mode="nearest")
    yield smaller("linear", (0.5, 0.5), mode="linear")
    yield smaller("linear_one_side", (1, 0.5), mode="linear")
    yield smaller("linear_to_a_quarter", (0.25, 0.5), (4, 8, 8), "by 0.25 x 0.5; expected integers", mode="linear")
    yield smaller("linear_antialias", (0.5, 0.5), refused="by 0.5 x 0.5; expected integers", mode="linear", antialias=1)
    yield smaller("linear_to_one_pixel", (0.5, 0.5), (4, 2, 2), mode="linear")
    yield smaller("linear_to_the_first_pixel", (0.5, 0.5), (4, 2, 2), "by 0.5 x 0.5; expected integers", mode="linear",
                  coordinate_transformation_mode="pytorch_half_pixel")


def constants():
    """Weights that a file gives another shape, as Caffe2's exporter does with the factors of channels."""
    for opset in (9, 13):
        axes, given = ({"axes": [1, 2]}, []) if opset < 13 else ({}, ["axes"])
        nodes = [node("Unsqueeze", ["g", *given], ["u"], **axes), node("Mul", ["x", "u"], ["m"]), node("Unsqueeze", ["b", *given], ["v"], **axes),
                 node("Add", ["m", "v"], ["y"])]
        yield one(f"unsqueezed_weights_{opset}", nodes, [tensor("g", weights(4)), tensor("b", weights(4, seed=3)), integers("axes", [1, 2])][:2 + (opset > 9)],
                  opset=opset)
    flat = node("Flatten", ["x"], ["f"])
    yield one("reshaped_weights", [flat, node("Reshape", ["w", "to"], ["m"]), node("Squeeze", ["c", "axes"], ["b"]), node("Gemm", ["f", "m", "b"], ["y"])],
              [tensor("w", weights(4, 9, 7, 5)), integers("to", [-1, 5]), tensor("c", weights(1, 5, 1)), integers("axes", [0, -1])])
    yield one("reshaped_to_another_size", [flat, node("Reshape", ["w", "to"], ["m"]), node("MatMul", ["f", "m"], ["y"])],
              [tensor("w", weights(4, 9, 7, 5)), integers("to", [251, 5])], refused="[4, 9, 7, 5] to [251, 5]")


def norms():
    """Refused by name, whole and in pieces."""
    scale, bias, cure = tensor("g", weights(4)), tensor("b", weights(4, seed=3)), "keep this network in float"
    turn = node("Transpose", ["x"], ["t"], perm=[0, 2, 3, 1])
    yield one("layer_norm", [turn, node("LayerNormalization", ["t", "g", "b"], ["y"])], [scale, bias], refused=cure)
    yield one("layer_norm_in_pieces", [turn, node("ReduceMean", ["t"], ["m"], axes=[-1]), node("Sub", ["t", "m"], ["y"])], refused=cure)
    yield one("layer_norm_of_channels", [node("ReduceMean", ["x"], ["m"], axes=[1]), node("Sub", ["x", "m"], ["y"])], refused=cure)
    yield one("instance_norm", [node("InstanceNormalization", ["x", "g", "b"], ["y"])], [scale, bias], refused=cure)


def operators_of_codes():
    """QOperator form. Two outputs, so that octet gives both as codes."""
    tensors = [tensor("xs", X_SCALE), tensor("xz", 0, np.uint8), tensor("ms", MID), tensor("mz", 120, np.uint8), tensor("ns", 0.0231),
               tensor("nz", 97, np.uint8), tensor("w1s", CHANNELS), tensor("w1z", np.zeros(6), np.int8), tensor("w2s", 3 / 128),
               tensor("w2z", 0, np.int8), tensor("w1", codes(6, 3, 3, 3), np.int8), tensor("w2", codes(6, 6, 1, 1, seed=4), np.int8),
               tensor("b1", np.arange(-3, 3) * 40, np.int32), tensor("d", codes(6, 5, seed=5), np.int8)]
    image = node("QuantizeLinear", ["x", "xs", "xz"], ["xq"])
    conv = node("QLinearConv", ["xq", "xs", "xz", "w1", "w1s", "w1z", "ms", "mz", "b1"], ["m"], name="conv1")
    next_conv = node("QLinearConv", ["m", "ms", "mz", "w2", "w2s", "w2z", "ns", "nz"], ["n"], name="conv2")

    def form(name, nodes, outputs, used=(), **more):
        given = [*nodes, *[node("DequantizeLinear", [q, f"{s}s", f"{s}z"], [f"{q}.r"]) for q, s in outputs]]
        names = {name for n in given for name in n.input}
        graph = model(given, [t for t in tensors + list(used) if t.name in names], [f"{q}.r" for q, _ in outputs], (3, 8, 8), 13)
        graph.opset_import.add(domain="com.microsoft", version=1)
        fault = "knows ONNX's own operators" if any(n.domain for n in nodes) else ""
        return Case(f"codes_{name}", graph, X, quantized=True, reference_fault=fault, **more)

    def microsofts(op, inputs, output, **attributes):
        return node(op, inputs, [output], domain="com.microsoft", **attributes)

    yield form("conv", [image, conv, next_conv], [("m", "m"), ("n", "n")])
    pool = node("MaxPool", ["m"], ["p"], kernel_shape=[2, 2], strides=[2, 2])
    yield form("pool", [image, conv, pool, next_conv], [("p", "m"), ("n", "n")])
    of_both = ["m", "ms", "mz", "n", "ns", "nz", "ns", "nz"]
    yield form("add", [image, conv, next_conv, microsofts("QLinearAdd", of_both, "s")], [("n", "n"), ("s", "n")])
    yield form("mul", [image, conv, next_conv, microsofts("QLinearMul", of_both, "s")], [("n", "n"), ("s", "n")], differs_from="codes_add")
    joined = ["ns", "nz", "m", "ms", "mz", "n", "ns", "nz"]
    yield form("concat", [image, conv, next_conv, microsofts("QLinearConcat", joined, "s", axis=1)], [("n", "n"), ("s", "n")])
    yield form("leaky", [image, conv, microsofts("QLinearLeakyRelu", ["m", "ms", "mz", "ns", "nz"], "s", alpha=0.2)], [("m", "m"), ("s", "n")])
    mean = microsofts("QLinearGlobalAveragePool", ["m", "ms", "mz", "ns", "nz"], "g", channels_last=0)
    row = node("Reshape", ["g", "to"], ["f"])
    yield form("mean", [image, conv, mean], [("m", "m"), ("g", "n")])
    product = node("QLinearMatMul", ["f", "ns", "nz", "d", "w2s", "w2z", "ms", "mz"], ["s"])
    yield form("matmul", [image, conv, mean, row, product], [("g", "n"), ("s", "m")], [integers("to", [-1, 6])])
    gemm = microsofts("QGemm", ["f", "ns", "nz", "d", "w2s", "w2z", "b2", "ms", "mz"], "s", transB=0)
    yield form("gemm", [image, conv, mean, row, gemm], [("g", "n"), ("s", "m")], [integers("to", [-1, 6]), tensor("b2", [70, -30, 0, 9, 200], np.int32)],
               differs_from="codes_matmul")
    computed = [node("Identity", ["w1s"], ["s1"]), image, node("QLinearConv", [*conv.input[:4], "s1", *conv.input[5:]], ["m"])]
    yield form("computed_scale", computed, [("m", "m")], refused="its scale 's1' is no float32 initializer")
    last = microsofts("QLinearGlobalAveragePool", ["m", "ms", "mz", "ns", "nz"], "g", channels_last=1)
    yield form("mean_of_last", [image, conv, last], [("g", "n")], refused="attribute 'channels_last' is nothing that octet knows")
    softmax = microsofts("QLinearSoftmax", ["m", "ms", "mz", "ns", "nz"], "s", opset=13, axis=1)
    yield form("softmax", [image, conv, softmax], [("s", "n")], refused="an operator of QOperator form that octet does not read")


def cases():
    for part in (older_opsets, channels_last, rows, bounds, products, windows, picks, constants, norms, operators_of_codes):
        yield from part()
