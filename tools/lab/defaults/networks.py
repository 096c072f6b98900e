#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Networks that nobody tuned octet for: torchvision's, as ONNX files that can still be trained.

    networks.py OUT [--only LIST] [--pixels 32] [--classes 10] [--seed 1]

For a user's torch and torchvision. Weights are random by seed, as torchvision begins with; BatchNorm stays (training=PRESERVE, no folding).
"""
import argparse
import pathlib
import warnings


def zoo(name):
    """torchvision's network of that name."""
    def make(classes):
        import torchvision
        return torchvision.models.get_model(name, weights=None, num_classes=classes)
    return make


def googlenet(classes):
    import torchvision
    return torchvision.models.googlenet(weights=None, num_classes=classes, aux_logits=False, init_weights=True)


def vgg11_bn(classes):
    """With one linear layer: the usual three have 120 million weights."""
    import torch
    import torchvision
    model = torchvision.models.vgg11_bn(weights=None, num_classes=classes)
    model.avgpool, model.classifier = torch.nn.AdaptiveAvgPool2d(1), torch.nn.Linear(512, classes)
    return model


def narrow_resnext(classes):
    """ResNeXt of eight groups, eight blocks."""
    from torchvision.models import resnet
    return resnet.ResNet(resnet.Bottleneck, [2, 2, 2, 2], num_classes=classes, groups=8, width_per_group=8)


NETWORKS = {name: zoo(name) for name in (
    "regnet_y_400mf", "regnet_x_400mf", "mnasnet1_0", "mobilenet_v3_small", "efficientnet_b0", "mobilenet_v2", "shufflenet_v2_x1_0", "resnet18",
    "mobilenet_v3_large", "densenet121", "squeezenet1_1", "resnet50", "regnet_y_800mf")}
NETWORKS |= {"googlenet": googlenet, "vgg11_bn": vgg11_bn, "resnext_8": narrow_resnext}


def export(name, path, pixels, classes, seed):
    import torch
    torch.manual_seed(seed)
    model = NETWORKS[name](classes).eval()  # dropout and stochastic depth belong to training, which octet does without them
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(model, (torch.zeros(1, 3, pixels, pixels),), str(path), dynamo=False, opset_version=17, input_names=["image"],
                          dynamic_axes={"image": {0: "batch"}}, training=torch.onnx.TrainingMode.PRESERVE, do_constant_folding=False)


def main():
    def names(text):
        unknown = [name for name in text.split(",") if name not in NETWORKS]
        if unknown:
            raise argparse.ArgumentTypeError(f"'{unknown[0]}' is none of {', '.join(NETWORKS)}")
        return text.split(",")

    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("out", type=pathlib.Path, metavar="OUT")
    parser.add_argument("--only", type=names, default=list(NETWORKS), metavar="LIST")
    parser.add_argument("--pixels", type=int, default=32)
    parser.add_argument("--classes", type=int, default=10)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    for name in options.only:
        path = options.out / f"{name}.onnx"
        export(name, path, options.pixels, options.classes, options.seed)
        print(f"{path}: {path.stat().st_size / 1e6:.1f} MB", flush=True)


if __name__ == "__main__":
    main()
