// SPDX-License-Identifier: Apache-2.0
// The keys of `data`.
#include <vector>

#include "src/recipe/schema.h"

namespace octet {

void add_data(std::vector<Field>& fields) {
  using D = DataRecipe;
  SectionFields<&Recipe::data> s(fields, "data");
  s.add("format", &D::format,
        one_of({"fashion_mnist", "mnist", "cifar10", "cifar100", "image_folder", "coco", "voc", "yolo", "synthetic"}),
        "what the files are; image_folder: in class folders or, with labels pixels, beside masks; coco: images with "
        "boxes, annotated in COCO's JSON, voc: in Pascal VOC's XML, yolo: in YOLO's text files")
      .required = true;
  s.add("path", &D::path, {},
        "folder of the files, of image_folder, coco, voc and yolo also a .tar of one; \"\": Debian's place for "
        "fashion_mnist");
  s.add("train", &D::train, {},
        "split to train on: train or test; image_folder: a subfolder, \"\" for path itself; coco, voc, yolo: any, see "
        "above");
  s.add("validation", &D::validation, {},
        "the same for every choice; \"\": cut from the training split by data.validation_fraction");
  s.add("test", &D::test, {}, "the same for the final figures; read once, at the end: nothing is chosen on it");
  s.add("test_path", &D::test_path, {},
        "folder or .tar that data.test is a part of, where the test images lie elsewhere; \"\": "
        "data.path");
  s.add("classes", &D::classes, {},
        "image_folder, coco, voc, yolo: file with one class a line, in the order of the labels, of masks also with its "
        "colour; folders may lack; \"\": data.class_names");
  s.add("class_names", &D::class_names, {},
        "image_folder, coco, voc, yolo: the classes in the order of the labels, in place of that file; []: sorted "
        "folders, categories by id, names of voc's training objects, sorted, those in yolo's data.yaml; with labels "
        "pixels one of the two is needed");
  s.add("ignore_index", &D::ignore_index, range(0, 255),
        "image_folder with labels pixels: the number of the masks' pixels that have no class; not with colours, see "
        "above");
  s.add("validation_fraction", &D::validation_fraction, from_below(0, 1),
        "share of the training split, by seed, that validates instead of training; 0: where data.validation is named");
  s.add("leave_out_faults", &D::leave_out_faults, {},
        "coco, voc, yolo: images without a file and boxes of a class that is none are left out and counted; false: "
        "refused");
  s.add("channels", &D::channels, range(0, 3), "1 grey, 3 colour; 0: the format's");
  s.add("image_size", &D::image_size, range(0, 2048), "height and width of the network's input; 0: the format's");
  s.add("image_width", &D::image_width, range(0, 2048), "its width, where image_size is the height alone; 0: both");
  s.add("resize", &D::resize, range(0, 4096),
        "shorter side before the crop to image_size; 0: none; in training only without random_resized_crop");
  s.add("fit", &D::fit, kFits,
        "how an image gets the input's size: its centre, stretched, or whole with grey around it, in the middle or "
        "(YOLOX) the upper left corner; not given: letterbox_corner for coco, voc, yolo");
  s.add("channel_order", &D::channel_order, kChannelOrders, "order of the input's channels; YOLOX's networks read bgr");
  s.add("orientation", &D::orientation, kOrientations,
        "exif: images are turned as their EXIF data says, before all else, in training and by the checkpoint; not "
        "given: exif for image_folder, coco, voc and yolo");
  s.add("mean", &D::mean, range(-10, 10), "subtracted from pixels in 0..1, one a channel; []: the format's");
  s.add("std", &D::std, above_to(0, 10), "divides the difference, one a channel; []: the format's");
  s.add("workers", &D::workers, range(0, 256), "threads that decode ahead; 0: none");
  s.add("decode", &D::decode, kDecodings,
        "image_folder, coco, voc, yolo: who decodes JPEGs that are trained on, and makes the batches; gpu: nvJPEG, see "
        "above");
  s.add("synthetic_size", &D::synthetic_size, range(2, 10000000), "synthetic: images in each set");
  s.add("synthetic_classes", &D::synthetic_classes, range(2, 1000), "synthetic: classes; with labels pixels 2 or 4");
  s.add("labels", &D::labels, kLabels,
        "what has a class: every image, every pixel (image_folder, synthetic: segmentation), or boxes (coco, voc, "
        "yolo: detection)");
  s.add("pad", &D::pad, range(0, 1024), "training: zeros on each side before a random crop of image_size");
  s.add("flip", &D::flip, {}, "training: mirror every second image");
  s.add("cutout", &D::cutout, range(0, 2048), "training: side of a square filled with the mean; 0: none");
  s.add("random_resized_crop", &D::random_resized_crop, {}, "training: a random part of the image, to image_size");
  s.add("crop_area_min", &D::crop_area_min, above_to(0, 1), "random_resized_crop: least share of the image's area");
  s.add("color_jitter", &D::color_jitter, range(0, 1),
        "training, fit crop: [brightness, contrast, saturation, hue], by how much each changes, as torchvision's "
        "ColorJitter; []: none");
  s.add("rand_augment", &D::rand_augment, range(0, 16),
        "training, fit crop, with labels image: so many operations an image, as torchvision's RandAugment; 0: none");
  s.add("rand_augment_magnitude", &D::rand_augment_magnitude, range(0, 30), "rand_augment: how strong they are");
  s.add("random_erasing", &D::random_erasing, range(0, 1),
        "training, fit crop: share of the images that lose a rectangle to the mean, as torchvision's RandomErasing");
  s.add("mixup_alpha", &D::mixup_alpha, range(0, 100),
        "training, fit crop, with labels image: each image is mixed with another, and its label, by a weight from "
        "Beta(alpha, alpha); 0: none");
  s.add("scale", &D::scale, from_below(0, 1),
        "training, fit letterbox and the like: images 1 - scale to 1 + scale times as large as they fit");
  s.add("translate", &D::translate, from_below(0, 1), "training, likewise: moved by up to this share of the input");
  s.add("degrees", &D::degrees, range(0, 180),
        "training, likewise: rotated by up to so many degrees to either side; boxes become those around the rotated "
        "ones");
  s.add("shear", &D::shear, range(0, 30), "training, likewise: sheared by up to so many degrees along both axes");
  s.add("hsv", &D::hsv, {}, "training, likewise: hue, saturation and value change, as YOLOX changes them");
  s.add(
      "mosaic", &D::mosaic, range(0, 1),
      "training, likewise, with labels boxes or pixels: share of the images that are mosaics of four, scaled and moved "
      "as said");
  s.add("mixup", &D::mixup, range(0, 1),
        "training, likewise, with labels boxes: share of the images that are the mean of two, with the boxes of both");
  s.add(
      "mosaic_off", &D::mosaic_off, at_least(0),
      "mosaic and mixup: the last so many epochs of each phase have none; box_l1 and schedule yolox: their last part");
  s.add("multi_scale", &D::multi_scale, from_below(0, 1),
        "training, likewise, with labels boxes or pixels: the input of a batch is 1 - multi_scale to 1 + multi_scale "
        "times image_size high and wide, see above");
  s.add("limit_train", &D::limit_train, at_least(0), "use so many training images, chosen by seed; 0: all");
  s.add("limit_validation", &D::limit_validation, at_least(0), "use so many validation images, chosen by seed; 0: all");
  s.add("limit_test", &D::limit_test, at_least(0), "use so many test images, chosen by seed; 0: all");
}

}  // namespace octet
