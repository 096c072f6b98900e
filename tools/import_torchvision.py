#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A classifier of torchvision as weights and a recipe for octet. Needs torch and torchvision; --onnx also onnx and onnxscript.

  import_torchvision.py resnet18 --out r18                     # pretrained weights, which torchvision downloads
  import_torchvision.py mnasnet1_0 --out mnas --weights my.pth --classes 20 --data FOLDER
  octet train r18/resnet18.yaml --set data.path=FOLDER         # calibrates; octet calibrate --all tries every method

Networks of octet's own zoo become a .safetensors with torchvision's names, others ONNX. FOLDER holds train/ and val/, in each a
folder a class, as ImageNet's.
"""
import argparse
import json
import pathlib
import struct
import sys
import warnings

# In octet's zoo, with torchvision's parameter names.
ZOO = ("efficientnet_b0", "mobilenet_v2", "mobilenet_v3_large", "resnet18", "resnet34", "resnet50", "shufflenet_v2_x0_5",
       "shufflenet_v2_x1_0", "squeezenet1_1", "vgg11_bn", "vgg16_bn")

RECIPE = """# {name} of torchvision {version}, {source}.
# PTQ: octet train {recipe} --set data.path=FOLDER    QAT: add --set qat.epochs=2 --set qat.learning_rate=0.001
data:
  format: image_folder
  path: {data}
  train: train
  test: val
  image_size: {size}
  resize: {resize}{note}
  mean: {mean}
  std: {std}

model:
  name: {model}
  {key}: {file}

train:
  epochs: 0

calibrate:
  images: 512
  batch_size: 16
  method: percentile

quant:
  activation: affine_u8

qat:
  epochs: 0
  batch_size: 32

evaluate:
  batch_size: 32
  reference_images: 100
"""


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("network", help="as torchvision calls it: resnet18, mnasnet1_0, ...")
    parser.add_argument("--out", type=pathlib.Path, default=pathlib.Path("."), help="folder of the two files (default: this one)")
    source = parser.add_mutually_exclusive_group()
    source.add_argument("--weights", type=pathlib.Path, help="a state_dict that torch.save wrote")
    source.add_argument("--random", action="store_true", help="random weights")
    parser.add_argument("--classes", type=int, help="of --weights or --random (default: 1000)")
    parser.add_argument("--onnx", choices=("torchscript", "dynamo"), help="write ONNX, by this exporter of PyTorch's")
    parser.add_argument("--data", default="data/imagenet", help="data.path of the recipe")
    options = parser.parse_args()
    if options.classes and not (options.weights or options.random):
        parser.error("--classes: pretrained weights have theirs; it goes with --weights or --random")
    return options


def fail(what):
    sys.exit(f"import_torchvision: {what}")


def load(model, file):
    import torch

    try:
        state = torch.load(file, map_location="cpu", weights_only=True)
        state = state.get("state_dict", state)  # training scripts wrap it so
        model.load_state_dict({key.removeprefix("module."): value for key, value in state.items()})
    except Exception as error:  # torch's own types differ: unpickling, zip, keys, shapes
        fail(f"{file}: not the network's weights: {' '.join(str(error).split())[:300]}")


def classifier(name, options):
    """The network in evaluation mode, its preprocessing, and where its weights come from."""
    import torch
    from torchvision import models

    known = models.list_models(module=models)
    if name not in known:
        fail(f"torchvision has no classifier '{name}'; it has {', '.join(known)}")
    pretrained = models.get_model_weights(name).DEFAULT
    more = {"init_weights": False} if name in ("googlenet", "inception_v3") else {}
    if options.weights or options.random:
        torch.manual_seed(1)
        model = models.get_model(name, weights=None, num_classes=options.classes or 1000, **more)
        if options.weights:
            load(model, options.weights)
        source = f"weights of {options.weights}" if options.weights else "random weights"
    else:
        try:
            model = models.get_model(name, weights=pretrained)
        except OSError as error:  # urllib's errors are
            fail(f"{pretrained} cannot be downloaded ({error}); give --weights FILE or --random")
        source = f"weights {pretrained}"
    return model.eval(), pretrained.transforms(), source


def write_safetensors(model, file):
    header, parts, at = {}, [], 0
    for key, value in model.state_dict().items():
        if key.endswith("num_batches_tracked"):
            continue
        parts.append(value.float().contiguous().numpy().tobytes())
        header[key] = {"dtype": "F32", "shape": list(value.shape), "data_offsets": [at, at + len(parts[-1])]}
        at += len(parts[-1])
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    file.write_bytes(b"".join([struct.pack("<Q", len(text)), text, *parts]))


def write_onnx(model, exporter, size, file):
    import torch

    picture = torch.zeros(2, 3, size, size)
    warnings.simplefilter("ignore")
    try:
        if exporter == "torchscript":  # BatchNorms stay: QAT goes on with their statistics
            torch.onnx.export(model, (picture,), str(file), dynamo=False, opset_version=17, input_names=["image"],
                              dynamic_axes={"image": {0: "batch"}}, training=torch.onnx.TrainingMode.PRESERVE,
                              do_constant_folding=False)
        else:
            torch.onnx.export(model, (picture,), str(file), dynamo=True, input_names=["image"], verbose=False,
                              dynamic_shapes=({0: torch.export.Dim("batch")},), external_data=False)
    except ImportError as error:
        fail(f"{error}: PyTorch's exporter needs it: pip install onnx onnxscript")
    except Exception as error:  # of whatever type the exporter has for it
        file.unlink(missing_ok=True)
        fail(f"PyTorch's exporter ({exporter}) refuses the network: {str(error).splitlines()[0]}")


def main():
    options = arguments()
    try:
        import torch  # noqa: F401
        import torchvision
    except ImportError as error:
        fail(f"{error}; run it with a Python that has torch and torchvision")
    name = options.network
    model, preprocessing, source = classifier(name, options)
    mean, std = list(preprocessing.mean), list(preprocessing.std)
    if getattr(model, "transform_input", False):  # these two do in the network what mean and std say as well
        model.transform_input, mean, std = False, [0.5] * 3, [0.5] * 3
    size = preprocessing.crop_size[0]
    exporter = options.onnx or ("" if name in ZOO else "torchscript")
    file = options.out / f"{name}.{'onnx' if exporter else 'safetensors'}"
    recipe = options.out / f"{name}.yaml"
    options.out.mkdir(parents=True, exist_ok=True)
    if exporter:
        write_onnx(model, exporter, size, file)
    else:
        write_safetensors(model, file)
    bilinear = preprocessing.interpolation.value == "bilinear"
    note = "" if bilinear else f"  # bilinear in octet, {preprocessing.interpolation.value} in torchvision"
    recipe.write_text(RECIPE.format(name=name, version=torchvision.__version__, source=source, recipe=recipe, data=json.dumps(options.data),
                                    size=size, resize=preprocessing.resize_size[0], note=note, mean=mean, std=std,
                                    model="onnx" if exporter else name, key="onnx" if exporter else "weights", file=json.dumps(str(file))))
    print(f"wrote {file} and {recipe}; octet train {recipe} --set data.path=FOLDER")


if __name__ == "__main__":
    try:
        main()
    except OSError as error:
        fail(f"{error.filename or 'writing'}: {error.strerror}")
