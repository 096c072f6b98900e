// SPDX-License-Identifier: Apache-2.0
// Pascal VOC's XML: lists, boxes, objects that are hard to see, and files that are refused by line.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <string>
#include <vector>

#include "src/data/box_annotations.h"
#include "tests/data/images.h"

namespace octet {
namespace {

using testing::data_refusal;
using testing::expect_part;
using testing::png_bytes;
using testing::TemporaryFolder;

std::string object_xml(const std::string& name, const std::string& box, const std::string& more = "") {
  return fmt::format("<object>\n<name> {}\n</name>{}{}\n</object>\n", name, more, box);
}

std::string box_xml(const std::string& left, const std::string& top, const std::string& right,
                    const std::string& bottom) {
  return fmt::format("<bndbox><xmin>{}</xmin><ymin>{}</ymin><xmax>{}</xmax><ymax>{}</ymax></bndbox>", left, top, right,
                     bottom);
}

class Voc : public ::testing::Test {
 protected:
  /// Writes the annotations of image a; its size stands in line 2, its first object in line 3.
  void write(const std::string& objects, const std::string& size = "<width>80</width><height>40</height>") const {
    folder_.write("VOC/Annotations/a.xml", "<annotation>\n<size>" + size + "</size>\n" + objects + "</annotation>\n");
  }
  void write_set() const {
    folder_.write("VOC/ImageSets/Main/train.txt", "b\n\na \r\n");
    folder_.write("VOC/ImageSets/Main/val.txt", "a\n");
    folder_.write("VOC/JPEGImages/a.png", png_bytes(testing::noise(40, 80, 3, 1)));
    folder_.write("VOC/JPEGImages/b.jpg", testing::jpeg_bytes(testing::gradient(30, 50, 3), 90));
    write(object_xml("dog", box_xml("1", "2", "30", "41")) +
          object_xml("cell", box_xml("5.5", "5", "5.5", "5"), "<difficult>1</difficult>"));
    folder_.write("VOC/Annotations/b.xml", "<annotation><filename>b</filename></annotation>");
  }
  DatasetSpec spec(const std::string& split = "train") const {
    return {.format = "voc", .path = folder_.path("VOC"), .split = split, .labels = Labels::boxes};
  }
  std::string refusal() const {
    return data_refusal([&] { open_dataset(spec()); });
  }
  void expect_refusal(const std::string& objects, const std::string& part) const {
    write(objects);
    expect_part(refusal(), part);
  }
  TemporaryFolder folder_;
};

TEST_F(Voc, ReadsListsBoxesAndWhatIsHardToSee) {
  write_set();
  const TemporaryFolder other;
  other.write("set.tar", testing::tar_of(folder_));
  for (const std::string& path : {folder_.path("VOC"), other.path("set.tar")}) {
    DatasetSpec from = spec();
    from.path = path;
    const auto dataset = open_dataset(from);
    ASSERT_EQ(dataset->size(), 2u) << path;
    EXPECT_EQ(dataset->class_names(), (std::vector<std::string>{"cell", "dog"}));
    EXPECT_TRUE(dataset->boxes(0).empty());
    EXPECT_EQ(dataset->read(0).width, 50);  // in the list's order; of a file that does not say its size
    ASSERT_EQ(dataset->boxes(1).size(), 2u);
    const BoxLabel &dog = dataset->boxes(1)[0], &cell = dataset->boxes(1)[1];
    EXPECT_EQ(dog.box, (Box{0, 1, 30, 40}));  // corners are pixels from 1, and belong to the box
    EXPECT_EQ(dog.class_index, 1);
    EXPECT_EQ(dog.area, 1200);
    EXPECT_FALSE(dog.crowd);
    EXPECT_EQ(cell.box, (Box{4.5, 4, 1, 1}));
    EXPECT_EQ(cell.class_index, 0);
    EXPECT_TRUE(cell.crowd);
    EXPECT_EQ(dataset->read(1).width, 80);
  }
}

TEST_F(Voc, OtherSplitsHaveTheClassesOfTraining) {
  write_set();
  DatasetSpec val = spec("val");
  val.class_names = {"eel", "dog", "cell"};
  EXPECT_EQ(open_dataset(val)->boxes(0)[0].class_index, 1);
  val.class_names = {"eel", "dog"};
  expect_part(
      data_refusal([&] { open_dataset(val); }),
      "a.xml:7: of class 'cell', which is none of the 2 classes (eel ...); a recipe's data.leave_out_faults: true");
  val.leave_out_faults = true;
  const auto dataset = open_dataset(val);
  ASSERT_EQ(dataset->boxes(0).size(), 1u);
  EXPECT_EQ(dataset->boxes(0)[0].class_index, 1);
  ASSERT_EQ(dataset->notes().size(), 1u);
  expect_part(dataset->notes()[0], "1 box left out, the first: ");
}

TEST_F(Voc, AnImageMayHaveAnyEndingAndVocsOwnComesFirst) {
  write_set();
  folder_.write("VOC/JPEGImages/b.png", png_bytes(testing::noise(60, 60, 3, 2)));  // a mask, say
  EXPECT_EQ(open_dataset(spec())->read(0).width, 50);
  std::filesystem::remove(folder_.path("VOC/JPEGImages/b.png"));
  for (const char* ending : {".JPG", ".jpeg", ".JPEG", ".png", ".PNG", ".bmp", ".webp"}) {  // whatever is in it
    std::filesystem::rename(folder_.path("VOC/JPEGImages/b.jpg"), folder_.path("VOC/JPEGImages/b") + ending);
    EXPECT_EQ(open_dataset(spec())->read(0).width, 50) << ending;
    std::filesystem::rename(folder_.path("VOC/JPEGImages/b") + ending, folder_.path("VOC/JPEGImages/b.jpg"));
  }
  std::filesystem::remove(folder_.path("VOC/JPEGImages/b.jpg"));
  expect_part(refusal(), "1 of its 2 images are not in ");
  expect_part(refusal(), "JPEGImages/b.jpg");
}

TEST_F(Voc, BoxesOutsideAreTold) {
  write_set();
  write(object_xml("dog", box_xml("60", "1", "90", "20")) + object_xml("dog", box_xml("1", "1", "80", "40")));
  const auto notes = open_dataset(spec())->notes();
  ASSERT_EQ(notes.size(), 1u);
  expect_part(notes[0], "1 box outside the image, the first: ");
  expect_part(notes[0], "a.xml:3");
}

TEST_F(Voc, BadFilesAreRefusedByLine) {
  write_set();
  const std::string box = box_xml("1", "1", "2", "2");
  expect_refusal("<object>\n<name>dog</name>\n</object>\n", "a.xml:3: <object> has no <bndbox>");
  expect_refusal("<object>\n" + box + "</object>\n", "a.xml:3: <object> has no <name>");
  expect_refusal("<object>\n<name> </name>" + box + "</object>\n", "a.xml:4: <name> is empty");
  expect_refusal("\n" + object_xml("dog", "\n" + box_xml("1", "x", "2", "3")), "a.xml:7: <ymin> 'x' is no number");
  expect_refusal(object_xml("dog", box_xml("5", "1", "3", "9")), "a.xml:5: a box of negative size");
  expect_refusal(object_xml("dog", box_xml("5", "1", "nan", "9")), "<xmax> 'nan' is no number");
  expect_refusal(object_xml("dog", box_xml("5", "1", "9 9", "9")), "<xmax> '9 9' is no number");
  expect_refusal("<object>\n</objet>\n", "a.xml:4: Start-end tags mismatch");
  write("", "<width>80</width>");
  expect_part(refusal(), "a.xml:2: <size> has no <height>");
  write("", "<width>-1</width><height>40</height>");
  expect_part(refusal(), "a.xml:2: height 40 and width -1");
  folder_.write("VOC/Annotations/a.xml", "<annotations/>");
  expect_part(refusal(), "a.xml: no element <annotation>");
  folder_.write("VOC/Annotations/a.xml", "");
  expect_part(refusal(), "a.xml:1: No document element found");
  write("", "<width>81</width><height>40</height>");
  expect_part(data_refusal([&] { open_dataset(spec())->read(1); }), "a.png: 80x40 pixels, the annotations say 81x40");
}

TEST_F(Voc, MissingFilesAreNamed) {
  write_set();
  expect_part(data_refusal([&] { open_dataset(spec("tset")); }),
              "VOC/ImageSets/Main/tset.txt: no such file: it would list the images of split 'tset'");
  folder_.write("VOC/ImageSets/Main/train.txt", "a 1\n");
  expect_part(refusal(), "train.txt:1: '1' behind a name: lists of one class");
  folder_.write("VOC/ImageSets/Main/train.txt", "a\nc\n");
  expect_part(refusal(), "VOC/Annotations/c.xml");
  folder_.write("VOC/Annotations/c.xml", "<annotation></annotation>");
  expect_part(refusal(), "train.txt: 1 of its 2 images are not in ");
  expect_part(refusal(), "the first: " + folder_.path("VOC/JPEGImages/c.jpg"));
  DatasetSpec lenient = spec();
  lenient.leave_out_faults = true;
  EXPECT_EQ(open_dataset(lenient)->size(), 1u);
  folder_.write("VOC/ImageSets/Main/train.txt", "\n");
  expect_part(refusal(), "train.txt: lists no image");
}

}  // namespace
}  // namespace octet
