# SPDX-License-Identifier: Apache-2.0
"""Cases of the operators of float networks without weights: functions of a value, copies, shapes and what is computed while a file is read.

What octet refuses on purpose is a case too: it must be refused by name, and never be computed as something else.
"""
import numpy as np
from judge import Case, model, noise, tensor
from onnx import TensorProto, helper
from onnx.helper import make_node as node

OPERATORS = {"Add", "Cast", "Clip", "Concat", "Constant", "ConstantOfShape", "DepthToSpace", "Div", "Dropout", "Erf", "Flatten", "Gather", "Gelu",
             "HardSigmoid", "HardSwish", "Identity", "LeakyRelu", "Mul", "Relu", "Reshape", "Resize", "Shape", "Sigmoid", "Slice", "Softmax",
             "SpaceToDepth", "Split", "Squeeze", "Sub", "Tanh", "Transpose", "Unsqueeze"}
EXEMPT = {("Constant", "sparse_value"): "ONNX Runtime's checker takes none of 13 and more, and octet reads dense constants only",
          ("Constant", "value_string"): "no operator that octet reads takes text", ("Constant", "value_strings"): "the same",
          ("Cast", "saturate"): "of casts to float8, which are refused; ONNX Runtime takes it nowhere else"}

SHAPE = (4, 6, 5)
NEWEST = 23


def one(name, nodes, tensors=(), shape=SHAPE, opset=17, batch="N", scale=1, then_relu=False, **more):
    """A case whose output is "y". `then_relu`: behind what may be nothing at all, since octet refuses a network that is its input."""
    if then_relu:
        for made in nodes:
            made.output[:] = ["before" if output == "y" else output for output in made.output]
        nodes = [*nodes, node("Relu", ["before"], ["y"])]
    return Case(name, model(nodes, list(tensors), "y", shape, opset, batch), scale * noise(shape), **more)


def integers(name, values):
    return tensor(name, values, np.int64)


def functions():
    for opset in (11, 12, 13, NEWEST):
        for low, high in ((None, None), (0, None), (0, np.inf), (0, 6), (-np.inf, np.inf)):
            tensors = [tensor(key, np.float32(value)) for key, value in (("low", low), ("high", high)) if value is not None]
            inputs = ["x"] + ["low"] * (low is not None or high is not None) + ["high"] * (high is not None)
            yield one(f"clip_{low}_{high}_{opset}", [node("Clip", inputs, ["y"])], tensors, opset=opset, scale=4, then_relu=True)
        top = [node("Clip", ["x", "", "high"], ["y"])]
        yield one(f"clip_to_6_{opset}", top, [tensor("high", np.float32(6))], opset=opset)
    for alpha in (None, 0.2):
        yield one(f"leaky_{alpha}", [node("LeakyRelu", ["x"], ["y"], **({} if alpha is None else {"alpha": alpha}))],
                  differs_from="" if alpha is None else "leaky_None")
    for opset in (11, NEWEST):
        for given in ({}, {"alpha": 1 / 6}, {"beta": 0.25}, {"alpha": 1 / 6, "beta": 0.5}, {"alpha": -0.3, "beta": 0.1}):
            name = "_".join(f"{key}_{value:.2f}" for key, value in given.items())
            yield one(f"hard_sigmoid_{name}_{opset}", [node("HardSigmoid", ["x"], ["y"], **given)], opset=opset, scale=3,
                      differs_from=f"hard_sigmoid__{opset}" if given else "")
    for form in (None, "none", "tanh"):
        yield one(f"gelu_{form}", [node("Gelu", ["x"], ["y"], **({} if form is None else {"approximate": form}))], opset=20,
                  refused="approximate 'tanh'; expected none" if form == "tanh" else "")
    for operator, opset in (("Relu", 11), ("Sigmoid", 11), ("Tanh", 11), ("HardSwish", 14), ("Identity", 11)):
        yield one(f"plain_{operator.lower()}", [node(operator, ["x"], ["z"]), node("Relu", ["z"], ["y"])], opset=opset)
    erf = [node("Div", ["x", "root"], ["a"]), node("Erf", ["a"], ["e"]), node("Add", ["e", "one"], ["g"]), node("Mul", ["x", "g"], ["d"]),
           node("Mul", ["d", "half"], ["y"])]
    yield one("erf", erf, [tensor("root", np.float32(2 ** 0.5)), tensor("one", np.float32(1)), tensor("half", np.float32(0.5))])
    for operator in ("Add", "Sub", "Mul", "Div"):
        for shape in ((), (1,), (4, 1, 1), (1, 4, 1, 1)):
            for first in (False, True):
                values = np.random.default_rng(7).uniform(0.5, 2, shape).astype(np.float32)
                refused = "divides by an activation" if operator == "Div" and first else ""
                yield one(f"{operator.lower()}_{len(shape)}_{int(np.prod(shape))}_{'first' if first else 'second'}",
                          [node(operator, ["c", "x"] if first else ["x", "c"], ["y"])], [tensor("c", values)], refused=refused)
        for shape in ((5,), (4, 6, 5), (6, 1), (1, 1, 4, 1, 1)):
            yield one(f"{operator.lower()}_of_{'x'.join(map(str, shape))}", [node(operator, ["x", "c"], ["y"])],
                      [tensor("c", np.ones(shape))], refused="one for each of 4 channels")
    yield one("add_of_two", [node("Relu", ["x"], ["r"]), node("Add", ["x", "r"], ["y"])])
    yield one("mul_of_two", [node("Tanh", ["x"], ["r"]), node("Mul", ["x", "r"], ["y"])])
    for opset, inputs, given in ((11, 1, {}), (11, 1, {"ratio": 0.3}), (12, 1, {}), (12, 2, {}), (12, 3, {"seed": 7}), (NEWEST, 3, {})):
        name = f"dropout_{opset}_{inputs}" + "".join(f"_{key}" for key in given)
        tensors = [tensor("ratio", np.float32(0.3)), tensor("training", False, bool)][:inputs - 1]
        yield one(name, [node("Dropout", ["x", "ratio", "training"][:inputs], ["y"], **given)], tensors, opset=opset)


def heads(name, axis, opset=17, refused=""):
    """Attention of one value with itself, in two heads of two channels."""
    softmax = node("Softmax", ["scores"], ["shares"], **({} if axis is None else {"axis": axis}))
    nodes = [node("Reshape", ["x", "heads"], ["k"]), node("Transpose", ["k"], ["q"], perm=[0, 1, 3, 2]), node("MatMul", ["q", "k"], ["scores"]),
             softmax, node("Transpose", ["shares"], ["turned"], perm=[0, 1, 3, 2]), node("MatMul", ["k", "turned"], ["mixed"]),
             node("Reshape", ["mixed", "picture"], ["y"])]
    tensors = [integers("heads", [-1, 2, 2, 30]), integers("picture", [-1, 4, 6, 5])]
    return one(name, nodes, tensors, opset=opset, refused=refused)


def copies():
    yield heads("softmax_default_13", None, 13)
    yield heads("softmax_default_23", None, NEWEST)
    yield heads("softmax_last_13", 3, 13)
    yield heads("softmax_last_11", 3, 11)
    yield heads("softmax_default_11", None, 11, refused="over axis 1 of heads")

    def slices(name, first, last, axes=None, steps=None, opset=17, refused="", differs_from=""):
        given = [("first", first), ("last", last), ("axes", axes), ("steps", steps)]
        inputs = ["x"] + [key if values is not None else "" for key, values in given]
        while not inputs[-1]:
            inputs.pop()
        return one(name, [node("Slice", inputs, ["y"])], [integers(key, values) for key, values in given if values is not None], opset=opset,
                   refused=refused, differs_from=differs_from)

    for opset in (11, 13, NEWEST):
        yield slices(f"slice_without_axes_{opset}", [0, 1], [2 ** 62, 3], opset=opset)
        yield slices(f"slice_axes_{opset}", [1], [5], axes=[-2], opset=opset)
        yield slices(f"slice_steps_without_axes_{opset}", [0, 1, 1, 0], [2 ** 62, 4, 6, 5], steps=[1, 2, 3, 2], opset=opset)
        yield slices(f"slice_steps_{opset}", [1, 4], [-1, 100], axes=[2, 1], steps=[2, 1], opset=opset,
                     refused="takes nothing of axis 1")
    yield slices("slice_backwards", [5], [-100], axes=[2], steps=[-1], refused="step -1; expected 1 and more")
    yield slices("slice_of_images", [1], [2], axes=[0], refused="of some images of the batch")
    for mode in (None, "DCR", "CRD"):
        yield one(f"depth_to_space_{mode}", [node("DepthToSpace", ["x"], ["y"], blocksize=2, **({} if mode is None else {"mode": mode}))],
                  shape=(12, 3, 5), differs_from="depth_to_space_DCR" if mode == "CRD" else "")
    yield one("space_to_depth", [node("SpaceToDepth", ["x"], ["y"], blocksize=2)], shape=(3, 6, 4))

    def split(name, axis=1, parts=None, outputs=2, opset=17, refused="", shape=SHAPE, **attributes):
        names = [f"part{i}" for i in range(outputs)]
        by_input = parts is not None and opset >= 13
        attributes |= {"axis": axis} if axis is not None else {}
        attributes |= {"split": parts} if parts is not None and not by_input else {}
        nodes = [node("Split", ["x"] + ["parts"] * by_input, names, **attributes), node("Concat", names[::-1], ["y"], axis=1)]
        return one(name, nodes, [integers("parts", parts)] if by_input else [], shape, opset, refused=refused)

    for opset in (11, 13, 18, NEWEST):
        halves = {"num_outputs": 2} if opset >= 18 else {}
        yield split(f"split_{opset}", opset=opset, **halves)
        yield split(f"split_axis_-3_{opset}", -3, opset=opset, **halves)
        yield split(f"split_parts_{opset}", parts=[1, 3], opset=opset)
        yield split(f"split_default_axis_{opset}", None, opset=opset, refused="along axis 0; expected 1", **halves)
    yield split("split_unevenly", outputs=3, opset=18, num_outputs=3, shape=(5, 6, 5))


def resizes():
    def resize(name, by="scales", values=(1, 1, 2, 3), opset=17, refused="", differs_from="", roi=False, shape=SHAPE, reference_fault="", **attributes):
        inputs = ["x", "roi" if roi or opset == 11 else "", "scales" if by == "scales" else "", "sizes" if by == "sizes" else ""]
        tensors = [tensor("roi", np.zeros(8 if roi else 0))] if inputs[1] else []
        if opset == 11 and by == "sizes":
            inputs[2] = "none"
            tensors.append(tensor("none", np.zeros(0)))
        tensors.append(tensor("scales", values) if by == "scales" else integers("sizes", values))
        while not inputs[-1]:
            inputs.pop()
        return one(name, [node("Resize", inputs, ["y"], **attributes)], tensors, shape, opset, batch=2 if by == "sizes" else "N", refused=refused,
                   differs_from=differs_from, reference_fault=reference_fault)

    nearest, linear = {"mode": "nearest"}, {"mode": "linear"}
    for opset in (11, 13, 17, 18, 19, NEWEST):
        yield resize(f"resize_{opset}", opset=opset)
        yield resize(f"resize_linear_{opset}", opset=opset, differs_from=f"resize_{opset}", **linear)
        yield resize(f"resize_sizes_{opset}", "sizes", (2, 4, 12, 15), opset=opset, **nearest)
    yield resize("resize_roi", roi=True)
    for rounding in ("round_prefer_floor", "round_prefer_ceil"):
        yield resize(f"resize_{rounding}", nearest_mode=rounding)
    for rounding in ("floor", "ceil"):
        yield resize(f"resize_{rounding}", nearest_mode=rounding, refused=f"half_pixel, {rounding}; expected pixels repeated")
    yield resize("resize_asymmetric_floor", nearest_mode="floor", coordinate_transformation_mode="asymmetric")
    for coordinates in ("half_pixel", "pytorch_half_pixel", "half_pixel_symmetric"):
        opset = 19 if coordinates.endswith("symmetric") else 17
        yield resize(f"resize_nearest_{coordinates}", opset=opset, coordinate_transformation_mode=coordinates, **nearest)
        yield resize(f"resize_linear_{coordinates}", opset=opset, coordinate_transformation_mode=coordinates, **linear)
    for coordinates in ("align_corners", "asymmetric", "tf_crop_and_resize"):
        roi = coordinates.startswith("tf")
        yield resize(f"resize_linear_{coordinates}", roi=roi, coordinate_transformation_mode=coordinates, refused=f"mode 'linear', {coordinates}",
                     **linear)
    yield resize("resize_cubic", mode="cubic", refused="mode 'cubic', half_pixel")
    yield resize("resize_cubic_coefficient", mode="cubic", cubic_coeff_a=-0.5, refused="mode 'cubic', half_pixel")
    yield resize("resize_linear_cubic_coefficient", cubic_coeff_a=-0.5, differs_from="resize_17", **linear)
    yield resize("resize_extrapolation_value", extrapolation_value=3.0, **linear)
    yield resize("resize_exclude_outside_0", exclude_outside=0, **linear)
    for opset in (18, NEWEST):
        yield resize(f"resize_antialias_{opset}", opset=opset, antialias=1, **linear)
        yield resize(f"resize_antialias_0_{opset}", opset=opset, antialias=0, **linear)
        yield resize(f"resize_axes_{opset}", values=(2, 3), axes=[2, 3], opset=opset)
        yield resize(f"resize_axes_sizes_{opset}", "sizes", (12, 15), axes=[-2, -1], opset=opset,
                     reference_fault="fails: axes don't match array")
        yield resize(f"resize_axes_turned_{opset}", values=(2, 3), axes=[3, 2], opset=opset, refused="axes [3, 2]; expected height and width")
        yield resize(f"resize_stretch_{opset}", "sizes", (2, 4, 12, 15), opset=opset, keep_aspect_ratio_policy="stretch")
        yield resize(f"resize_not_larger_{opset}", "sizes", (2, 4, 12, 15), opset=opset, keep_aspect_ratio_policy="not_larger",
                     refused="keep_aspect_ratio_policy 'not_larger'")
    yield resize("resize_smaller", values=(1, 1, 0.5, 1), refused="by 0.5 x 1; expected integers")


def shapes():
    for axis in (None, 1, -3):
        yield one(f"flatten_{axis}", [node("Flatten", ["x"], ["y"], **({} if axis is None else {"axis": axis}))])
    for axis in (0, 2):
        yield one(f"flatten_{axis}", [node("Flatten", ["x"], ["y"], axis=axis)], refused=f"axis {axis}; expected 1")
    pixel = (4, 1, 1)
    for opset in (11, 13, NEWEST):
        given, tensors = ({"axes": [2, 3]}, []) if opset < 13 else ({}, [integers("axes", [-1, 2])])
        inputs = ["axes"] * (opset >= 13)
        yield one(f"squeeze_{opset}", [node("Squeeze", ["x", *inputs], ["y"], **given)], tensors, pixel, opset, then_relu=True)
        yield one(f"squeeze_all_{opset}", [node("Squeeze", ["x"], ["y"])], [], pixel, opset, refused="axes [] of [N, 4, 1, 1]")
        back = [node("Flatten", ["x"], ["row"]), node("Unsqueeze", ["row", *inputs], ["y"], **given)]
        yield one(f"unsqueeze_{opset}", back, tensors, pixel, opset, then_relu=True)
    for opset, zero in ((13, None), (14, None), (14, 0), (14, 1), (NEWEST, 1)):
        target = [0, -1] if not zero else [-1, 120]
        yield one(f"reshape_{opset}_{zero}", [node("Reshape", ["x", "to"], ["y"], **({} if zero is None else {"allowzero": zero}))],
                  [integers("to", target)], opset=opset)
    yield one("reshape_to_nothing", [node("Reshape", ["x", "to"], ["y"], allowzero=1)], [integers("to", [0, 120])], refused="expected [N, -1], a flatten")

    def sizes(name, start=None, end=None, opset=17):
        """x to [N, C * H * W], by its own Shape."""
        given = {key: value for key, value in (("start", start), ("end", end)) if value is not None}
        nodes = [node("Shape", ["x"], ["shape"], **given), node("Gather", ["shape", "first"], ["batch"], axis=0),
                 node("Concat", ["batch", "rest"], ["to"], axis=0), node("Reshape", ["x", "to"], ["y"])]
        return one(name, nodes, [integers("first", [0]), integers("rest", [-1])], opset=opset)

    yield sizes("shape_13", opset=13)
    yield sizes("shape", opset=15)
    yield sizes("shape_start", 0, opset=15)
    yield sizes("shape_end", None, 1, opset=15)
    yield sizes("shape_start_end", -4, -2, opset=NEWEST)
    for axis in (None, 0, -1):
        nodes = [node("Shape", ["x"], ["shape"]), node("Gather", ["shape", "one"], ["channels"], **({} if axis is None else {"axis": axis})),
                 node("Concat", ["all", "channels", "rest"], ["to"], axis=0), node("Reshape", ["x", "to"], ["y"])]
        yield one(f"gather_{axis}", nodes, [integers("one", [1]), integers("all", [-1]), integers("rest", [6, 5])], then_relu=True)
    matrix = np.random.default_rng(5).standard_normal((3, 4), np.float32)
    for perm in (None, [1, 0]):
        nodes = [node("Flatten", ["x"], ["row"]), node("Transpose", ["m"], ["w"], **({} if perm is None else {"perm": perm})),
                 node("MatMul", ["row", "w"], ["y"])]
        yield one(f"transpose_{perm is not None}", nodes, [tensor("m", matrix)], pixel)
    yield one("transpose_same", [node("Flatten", ["x"], ["row"]), node("Transpose", ["m"], ["w"], perm=[0, 1]), node("MatMul", ["row", "w"], ["y"])],
              [tensor("m", matrix.T)], pixel, refused="expected perm [1, 0] of a matrix")
    yield one("transpose_activation", [node("Transpose", ["x"], ["y"])], refused="of an activation")


def constants():
    def constant(name, clip=False, **value):
        user = node("Clip", ["x", "c"], ["y"]) if clip else node("Add", ["x", "c"], ["y"])
        return one(name, [node("Constant", [], ["c"], **value), user])

    yield constant("constant_value", value=tensor("", np.float32(0.7)))
    yield constant("constant_value_float", value_float=0.7)
    yield constant("constant_value_floats", value_floats=[0.7])
    for name, value in (("int", {"value_int": 0}), ("ints", {"value_ints": [0, 0]})):
        nodes = [node("Constant", [], ["c"], **value), node("Gather", ["to", "c"], ["taken"], axis=0)]
        nodes += [node("Concat", ["all", "rest"], ["picked"], axis=0), node("Reshape", ["x", "picked"], ["y"])]
        if name == "ints":
            nodes[2] = node("Concat", ["all", "taken"], ["picked"], axis=0)
            nodes[2:3] = [node("Slice", ["taken", "zero", "one"], ["cut"]), node("Concat", ["all", "cut"], ["picked"], axis=0)]
        else:
            nodes[2:3] = [node("Unsqueeze", ["taken", "zero"], ["cut"]), node("Concat", ["all", "cut"], ["picked"], axis=0)]
        yield one(f"constant_value_{name}", nodes, [integers("to", [120]), integers("all", [-1]), integers("zero", [0]), integers("one", [1])])
    for name, given in (("default", {}), ("reals", {"value": tensor("", [0.7])}), ("zero", {"value": tensor("", [0.0])})):
        nodes = [node("ConstantOfShape", ["size"], ["c"], **given), node("Add", ["x", "c"], ["y"])]
        yield one(f"constant_of_shape_{name}", nodes, [integers("size", [1])], then_relu=True, differs_from="constant_of_shape_default" if name == "reals" else "")
    nodes = [node("ConstantOfShape", ["size"], ["zeros"], value=tensor("", [0], np.int64)), node("Concat", ["zeros", "behind"], ["pads"], axis=0),
             node("Pad", ["x", "pads"], ["p"]), node("AveragePool", ["p"], ["y"], kernel_shape=[2, 2])]
    yield one("constant_of_shape_integers", nodes, [integers("size", [6]), integers("behind", [1, 1])])
    for opset in (13, 19, 21, NEWEST):
        yield one(f"cast_{opset}", [node("Cast", ["x"], ["z"], to=TensorProto.FLOAT), node("Relu", ["z"], ["y"])], opset=opset)
    nodes = [node("Cast", ["two"], ["c"], to=TensorProto.FLOAT), node("Div", ["one", "c"], ["half"]), node("Mul", ["x", "half"], ["y"])]
    yield one("cast_of_an_integer", nodes, [integers("two", [2]), tensor("one", np.float32(1))])
    half = [node("Cast", ["w"], ["c"], to=TensorProto.FLOAT), node("Mul", ["x", "c"], ["y"])]
    yield one("cast_of_half", half, [tensor("w", np.linspace(-1, 1, 4).reshape(4, 1, 1), np.float16)])
    # As PyTorch writes model.double(): the judges compute in float64, octet with the nearest float32.
    nodes = [node("Cast", ["x"], ["d"], to=TensorProto.DOUBLE), node("Flatten", ["d"], ["row"]), node("Gemm", ["row", "w", "b"], ["g"]),
             node("Relu", ["g"], ["r"]), node("MatMul", ["r", "m"], ["p"]), node("Cast", ["p"], ["y"], to=TensorProto.FLOAT)]
    random = np.random.default_rng(5)
    doubles = [tensor(name, random.standard_normal(size), np.float64) for name, size in (("w", (120, 6)), ("b", 6), ("m", (6, 5)))]
    yield one("weights_of_double", nodes, doubles)
    for operator in ("Add", "Sub", "Mul", "Div"):
        nodes = [node(operator, ["a", "b"], ["c"]), node("Mul", ["x", "c"], ["y"])]
        for shape in ((), (4, 1, 1)):
            yield one(f"{operator.lower()}_of_constants_{len(shape)}", nodes, [tensor("a", np.full(shape, 0.7)), tensor("b", np.float32(0.4))])


def cases():
    for part in (functions, copies, resizes, shapes, constants):
        yield from part()
