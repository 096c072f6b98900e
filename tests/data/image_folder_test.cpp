// SPDX-License-Identifier: Apache-2.0
// Image folders on disk and in a tar: order, labels, damage.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <memory>

#include "src/data/file_tree.h"
#include "src/data/image_folder.h"
#include "tests/data/images.h"
#include "tests/source_dir.h"

namespace octet {
namespace {

using testing::data_refusal;
using testing::expect_part;
using testing::kTarEnd;
using testing::noise;
using testing::png_bytes;
using testing::tar_member;
using testing::TemporaryFolder;

DatasetSpec spec_of(const std::string& path, const std::string& split = "", const std::string& classes = "") {
  return {.format = "image_folder", .path = path, .split = split, .classes = classes};
}

TEST(ImageFolder, SortedFoldersAndFiles) {
  const TemporaryFolder folder;
  const Image cat = noise(4, 5, 3, 1), dog = noise(6, 3, 3, 2);
  folder.write("train/dog/b.png", png_bytes(dog));
  folder.write("train/cat/z.PNG", png_bytes(cat));
  folder.write("train/cat/a.png", png_bytes(noise(2, 2, 3, 3)));
  folder.write("train/cat/notes.txt", "not an image");
  const auto dataset = open_dataset(spec_of(folder.path(), "train"));
  ASSERT_EQ(dataset->size(), 3u);
  EXPECT_EQ(dataset->class_names(), (std::vector<std::string>{"cat", "dog"}));
  EXPECT_EQ(dataset->read(1).pixels, cat.pixels);
  EXPECT_EQ(dataset->read(2).pixels, dog.pixels);
  EXPECT_EQ(dataset->label(2), 1);
  EXPECT_EQ(dataset->describe(2), folder.path("train/dog/b.png"));
}

TEST(ImageFolder, ClassFileGivesTheOrder) {
  const TemporaryFolder folder;
  folder.write("data/dog/b.png", png_bytes(noise(2, 2, 3, 2)));
  folder.write("data/cat/a.png", png_bytes(noise(2, 2, 3, 3)));
  folder.write("classes.txt", "dog\r\ncat\n\n");
  const auto dataset = open_dataset(spec_of(folder.path("data"), "", folder.path("classes.txt")));
  EXPECT_EQ(dataset->class_names(), (std::vector<std::string>{"dog", "cat"}));
  expect_part(dataset->describe(0), "dog/b.png");
  const auto refusal = [&](const std::string& lines) {
    folder.write("classes.txt", lines);
    return data_refusal([&] { open_dataset(spec_of(folder.path("data"), "", folder.path("classes.txt"))); });
  };
  expect_part(refusal("dog\n"), "folder cat is not a class of");
  expect_part(refusal("dog\ncat\ndog\n"), "class dog is listed twice");
}

TEST(ImageFolder, TheTrainingSetNamesTheClassesOfOtherSplits) {
  const TemporaryFolder folder;
  for (const char* file : {"train/cat/a.png", "train/dog/b.png", "train/eel/c.png", "test/eel/d.png"})
    folder.write(file, png_bytes(noise(2, 2, 3, 3)));
  std::filesystem::create_directory(folder.path("test/cat"));  // empty, and there is no dog
  DatasetSpec spec = spec_of(folder.path(), "test");
  expect_part(data_refusal([&] { open_dataset(spec); }), "class folder without an image (JPEG, PNG, BMP, WebP)");
  spec.class_names = open_dataset(spec_of(folder.path(), "train"))->class_names();
  ::testing::internal::CaptureStderr();
  const auto test = open_dataset(spec);
  expect_part(::testing::internal::GetCapturedStderr(),
              "1 of the 3 classes in data.class_names or, without it, the training set; none of cat, dog");
  EXPECT_EQ(test->class_names(), spec.class_names);
  EXPECT_EQ(test->label(0), 2);
  folder.write("test/fox/e.png", png_bytes(noise(2, 2, 3, 3)));
  expect_part(data_refusal([&] { open_dataset(spec); }),
              "folder fox is not a class of data.class_names or, without it,");
}

/// A network of many classes is evaluated on images of a few: labels stay those of the class file.
TEST(ImageFolder, ClassesWithoutImagesAreANote) {
  const TemporaryFolder folder;
  folder.write("data/dog/b.png", png_bytes(noise(2, 2, 3, 2)));
  folder.write("data/eel/a.png", png_bytes(noise(2, 2, 3, 3)));
  folder.write("data/cat/notes.txt", "not an image");
  folder.write("a.tar", tar_member("dog/1.png", png_bytes(noise(2, 2, 3, 2))) +
                            tar_member("eel/1.png", png_bytes(noise(2, 2, 3, 3))) + kTarEnd);
  folder.write("classes.txt", "ant\nbee\ncat\ncow\ndog\neel\n");
  for (const char* path : {"data", "a.tar"}) {
    ::testing::internal::CaptureStderr();
    const auto dataset = open_dataset(spec_of(folder.path(path), "", folder.path("classes.txt")));
    const std::string said = ::testing::internal::GetCapturedStderr();
    expect_part(said, std::string(path) + ": images of 2 of the 6 classes in " + folder.path("classes.txt") +
                          "; none of ant, bee, cat and 1 more\n");
    ASSERT_EQ(dataset->size(), 2u);
    EXPECT_EQ(dataset->class_names().size(), 6u);
    EXPECT_EQ(dataset->label(0), 4);
    EXPECT_EQ(dataset->label(1), 5);
  }
  folder.write("classes.txt", "dog\neel\n");
  ::testing::internal::CaptureStderr();
  open_dataset(spec_of(folder.path("data"), "", folder.path("classes.txt")));
  EXPECT_EQ(::testing::internal::GetCapturedStderr(), "");
  std::filesystem::remove_all(folder.path("data/dog"));
  std::filesystem::remove_all(folder.path("data/eel"));
  expect_part(data_refusal([&] { open_dataset(spec_of(folder.path("data"), "", folder.path("classes.txt"))); }),
              "no class folder with an image (JPEG, PNG, BMP, WebP)");
}

TEST(ImageFolder, DamageNamesTheFile) {
  const TemporaryFolder folder;
  expect_part(data_refusal([&] { open_dataset(spec_of(folder.path(), "train")); }), "train: no such folder");
  expect_part(data_refusal([&] { open_dataset(spec_of(folder.path())); }), "no class folder");
  folder.write("cat/a.png", png_bytes(noise(8, 8, 3, 3)).substr(0, 60));
  const auto dataset = open_dataset(spec_of(folder.path()));
  expect_part(data_refusal([&] { dataset->read(0); }), folder.path("cat/a.png") + ": PNG: ends early");
  std::filesystem::create_directories(folder.path("empty"));
  expect_part(data_refusal([&] { open_dataset(spec_of(folder.path())); }), "empty: class folder without");
}

TEST(ImageFolder, TarIsReadInPlace) {
  const TemporaryFolder folder;
  const Image cat = noise(4, 5, 3, 1), dog = noise(6, 3, 3, 2);
  folder.write("a.tar", tar_member("./val/", "", '5') + tar_member("./val/dog/1.png", png_bytes(dog)) +
                            tar_member("./val/cat/1.png", png_bytes(cat)) +
                            tar_member("./train/cow/1.png", png_bytes(cat)) + kTarEnd);
  const auto dataset = open_dataset(spec_of(folder.path("a.tar"), "val"));
  ASSERT_EQ(dataset->size(), 2u);
  EXPECT_EQ(dataset->class_names(), (std::vector<std::string>{"cat", "dog"}));
  EXPECT_EQ(dataset->read(0).pixels, cat.pixels);
  EXPECT_EQ(dataset->read(1).pixels, dog.pixels);
  EXPECT_EQ(dataset->describe(1), folder.path("a.tar") + "/val/dog/1.png");
}

TEST(ImageFolder, EveryEndingOfAnImageIsRead) {
  const TemporaryFolder folder;
  const Image image = noise(4, 5, 3, 1);
  for (const char* name : {"a.jfif", "b.JPE", "c.jpg", "d.jpeg"})
    folder.write(std::string("cat/") + name, testing::jpeg_bytes(image, 90));
  folder.write("cat/e.webp", testing::webp_bytes(image));
  folder.write("cat/f.png", png_bytes(image));
  const auto dataset = open_dataset(spec_of(folder.path()));
  ASSERT_EQ(dataset->size(), 6u);
  for (size_t i = 0; i < 6; ++i) EXPECT_EQ(dataset->read(i).width, 5);
  EXPECT_TRUE(dataset->notes().empty());
}

TEST(ImageFolder, WhatIsLeftOutIsCountedAndNamed) {
  const TemporaryFolder folder;
  const std::string png = png_bytes(noise(2, 2, 3, 2));
  for (const char* name : {"cat/1.png", "cat/b.TIFF", "cat/a.tiff", "dog/c.tiff", "dog/2.png", "dog/notes.txt",
                           "dog/old/3.png", "cat/newer/4.png", "loose.png", "cat/README", "cat/.DS_Store"})
    folder.write("data/" + std::string(name), png);
  const auto dataset = open_dataset(spec_of(folder.path("data")));
  EXPECT_EQ(dataset->size(), 2u);
  const std::string read = "; read are .jpg .jpeg .jpe .jfif .png .bmp .webp";
  ASSERT_EQ(dataset->notes().size(), 1u);
  EXPECT_EQ(dataset->notes()[0], folder.path("data") +
                                     ": left out: .tiff 3 (cat/a.tiff), .txt 1 (dog/notes.txt), files beside the class "
                                     "folders 1 (loose.png), files without an ending 1 (cat/README), folders within "
                                     "class folders 2 (cat/newer)" +
                                     read);
  folder.write("a.tar", tar_member("cat/1.png", png) + tar_member("cat/a.gif", png) + tar_member("cat/b.gif", png) +
                            tar_member("cat/old/c.png", png) + tar_member("d.png", png) +
                            tar_member("cat/._1.png", png) + kTarEnd);
  const auto archive = open_dataset(spec_of(folder.path("a.tar")));
  EXPECT_EQ(archive->size(), 1u);
  ASSERT_EQ(archive->notes().size(), 1u);
  EXPECT_EQ(archive->notes()[0],
            folder.path("a.tar") +
                ": left out: .gif 2 (cat/a.gif), files beside the class folders 1 (d.png), files in "
                "folders within class folders 1 (cat/old/c.png)" +
                read);
  std::filesystem::remove(folder.path("data/cat/1.png"));
  std::filesystem::remove(folder.path("data/dog/2.png"));
  DatasetSpec spec = spec_of(folder.path("data"));
  spec.class_names = {"cat", "dog"};
  expect_part(data_refusal([&] { open_dataset(spec); }), "(JPEG, PNG, BMP, WebP): left out: .tiff 3 (cat/a.tiff)");
}

/// A file as editors of other systems write it: a byte order mark, tabs and blanks behind names, carriage returns.
TEST(ImageFolder, AClassFileFromAnySystem) {
  const TemporaryFolder folder;
  for (const char* file : {"data/dog/b.png", "data/cat/a.png", "data/sea lion/c.png"})
    folder.write(file, png_bytes(noise(2, 2, 3, 2)));
  folder.write("classes.txt",
               "\xEF\xBB\xBF"
               "dog\t\r\nsea lion \t \r\ncat\t\n\t\n");
  const auto dataset = open_dataset(spec_of(folder.path("data"), "", folder.path("classes.txt")));
  EXPECT_EQ(dataset->class_names(), (std::vector<std::string>{"dog", "sea lion", "cat"}));
}

TEST(ImageFolder, OrientationIsFollowedWhereTheRecipeSaysSo) {
  const TemporaryFolder folder;
  const Image stored = noise(4, 6, 3, 1);
  const std::string png = testing::png_with_exif(png_bytes(stored), testing::exif_bytes(6, true));
  const std::string jpeg =
      testing::jpeg_with_exif(testing::jpeg_bytes(noise(300, 400, 3, 2), 100), testing::exif_bytes(3, false));
  ASSERT_GT(jpeg.size(), size_t{128} << 10);  // its header alone is read from a part
  folder.write("cat/a.png", png);
  folder.write("cat/b.jpg", jpeg);
  folder.write("a.tar", tar_member("cat/a.png", png) + tar_member("cat/b.jpg", jpeg) + kTarEnd);
  for (const char* path : {"", "a.tar"}) {
    DatasetSpec spec = spec_of(folder.path(path));
    EXPECT_EQ(open_dataset(spec)->read(0).pixels, stored.pixels);
    spec.orientation = Orientation::exif;
    const auto dataset = open_dataset(spec);
    EXPECT_EQ(dataset->orientation(), Orientation::exif);
    const Image turned = dataset->read(0);
    EXPECT_EQ(turned.height, 6);
    EXPECT_EQ(turned.width, 4);
    const uint8_t* lower_left = &stored.pixels[3 * 6 * 3];  // comes to the upper left
    EXPECT_TRUE(std::equal(lower_left, lower_left + 3, turned.pixels.begin()));
    EXPECT_EQ(dataset->header(0)->orientation, 6);
    EXPECT_EQ(dataset->header(1)->orientation, 3);
    EXPECT_EQ(dataset->header(1)->width, 400);
  }
}

/// tar -cf imagenet.tar imagenet
TEST(ImageFolder, ATarMayHaveOneFolderOnTop) {
  const TemporaryFolder folder;
  const std::string png = png_bytes(noise(4, 5, 3, 1));
  for (const std::string dot : {"", "./"}) {
    folder.write("a.tar", tar_member(dot + "all/", "", '5') + tar_member(dot + "all/train/cat/1.png", png) +
                              tar_member(dot + "all/train/dog/1.png", png) +
                              tar_member(dot + "all/val/cat/2.png", png) + kTarEnd);
    const auto train = open_dataset(spec_of(folder.path("a.tar"), "train"));
    EXPECT_EQ(train->class_names(), (std::vector<std::string>{"cat", "dog"}));
    EXPECT_EQ(train->describe(0), folder.path("a.tar") + "/all/train/cat/1.png");
    EXPECT_EQ(train->read(1).width, 5);
    EXPECT_TRUE(train->notes().empty());
    EXPECT_EQ(open_dataset(spec_of(folder.path("a.tar"), "val"))->size(), 1u);
    folder.write("b.tar", tar_member(dot + "all/cat/1.png", png) + tar_member(dot + "all/dog/1.png", png) + kTarEnd);
    EXPECT_EQ(open_dataset(spec_of(folder.path("b.tar")))->size(), 2u);
  }
  folder.write("two.tar", tar_member("a/train/cat/1.png", png) + tar_member("b/train/cat/1.png", png) + kTarEnd);
  expect_part(data_refusal([&] { open_dataset(spec_of(folder.path("two.tar"), "train")); }), "no class folder with");
}

/// tar -cf faces.tar home/me/faces, on a machine that leaves hidden files beside the folders.
TEST(ImageFolder, ATarMayHaveSeveralFoldersOnTop) {
  const TemporaryFolder folder;
  const std::string png = png_bytes(noise(4, 5, 3, 1)), top = "home/me/faces/";
  folder.write("a.tar", tar_member("home/._me", "") + tar_member(top + "cat/1.png", png) +
                            tar_member(top + "dog/1.png", png) + tar_member(top + "dog/2.png", png) + kTarEnd);
  const auto dataset = open_dataset(spec_of(folder.path("a.tar")));
  EXPECT_EQ(dataset->class_names(), (std::vector<std::string>{"cat", "dog"}));
  ASSERT_EQ(dataset->size(), 3u);
  EXPECT_EQ(dataset->describe(2), folder.path("a.tar") + "/home/me/faces/dog/2.png");
  EXPECT_EQ(dataset->read(2).width, 5);
  folder.write("b.tar", tar_member(top + "train/cat/1.png", png) + tar_member(top + "val/cat/2.png", png) + kTarEnd);
  EXPECT_EQ(open_dataset(spec_of(folder.path("b.tar"), "val"))->describe(0),
            folder.path("b.tar") + "/home/me/faces/val/cat/2.png");
  folder.write("one_class.tar", tar_member("a/b/cat/1.png", png) + kTarEnd);
  EXPECT_EQ(open_dataset(spec_of(folder.path("one_class.tar")))->class_names(), std::vector<std::string>{"cat"});
  const std::string refusal = data_refusal([&] { open_dataset(spec_of(folder.path("b.tar"))); });
  expect_part(refusal, folder.path("b.tar") + ": no class folder with an image");
  expect_part(refusal, "images lie in a folder for each class");
}

TEST(ImageFolder, CompressedArchivesNameTheCure) {
  const TemporaryFolder folder;
  const std::string tar = tar_member("cat/1.png", png_bytes(noise(4, 5, 3, 1))) + kTarEnd;
  const auto refusal = [&](const std::string& name) {
    folder.write(name, testing::gzip_bytes(tar));
    return data_refusal([&] { open_dataset(spec_of(folder.path(name), "train")); });
  };
  expect_part(refusal("a.tar.gz"),
              "a.tar.gz: compressed, so its images cannot be read in any order; decompress it "
              "once, gunzip -k " +
                  folder.path("a.tar.gz") + ", and name " + folder.path("a.tar"));
  expect_part(refusal("b.tgz"), "and name " + folder.path("b.tar"));
  expect_part(refusal("c.tar.zst"), "c.tar.zst: an archive that is not read; unpack it");
  expect_part(refusal("d.zip"), "d.zip: an archive that is not read");
  expect_part(refusal("e.tar"), "e.tar: compressed by gzip");
}

TEST(Tar, DamageIsNamed) {
  const TemporaryFolder folder;
  const auto refusal = [&](const std::string& bytes) {
    folder.write("a.tar", bytes);
    return data_refusal([&] { TarFile tar(folder.path("a.tar")); });
  };
  const std::string good = tar_member("a/b.png", std::string(700, 'x'));
  expect_part(refusal(""), "ends early");
  expect_part(refusal(good), "ends early; fetch it again (header at byte 1536)");
  expect_part(refusal(good.substr(0, 900)), "ends inside a member");
  std::string altered = good + kTarEnd;
  altered[3] = 'y';
  expect_part(refusal(altered), "wrong checksum");
  expect_part(refusal(tar_member("long", "name", 'L') + kTarEnd), "extract the archive");
  expect_part(refusal(tar_member("link", "", '2') + kTarEnd), "extract the archive");
  expect_part(refusal(tar_member("pax", "20 path=elsewhere\n", 'x') + good + kTarEnd), "names that ustar cannot hold");
  folder.write("a.tar", tar_member("pax", "20 mtime=1.5\n", 'x') + good + kTarEnd);
  EXPECT_EQ(TarFile(folder.path("a.tar")).members().size(), 1u);
}

TEST(Tar, IsIndexedOnceUntilItChanges) {
  const TemporaryFolder folder;
  const std::string path = folder.path("a.tar"), member = tar_member("a/b.png", "x");
  folder.write("a.tar", member + kTarEnd);
  const std::shared_ptr<const TarFile> first = open_tar(path);
  EXPECT_EQ(open_tar(path), first);
  folder.write("a.tar", member + member + kTarEnd);
  EXPECT_EQ(open_tar(path)->members().size(), 2u);
}

TEST(Tar, SharedImageNetSample) {
  const char* shared = std::getenv("OCTET_SHARED_DATA");
  const std::string base = shared ? shared : source_dir() + "/../shared/data";
  const std::string folder = base + "/imagenet-sample/";
  if (!std::filesystem::exists(folder)) GTEST_SKIP() << "no " << folder << ": set OCTET_SHARED_DATA";
  const auto dataset = open_dataset(spec_of(folder + "imagenet-sample-1000.tar", "", folder + "wnids.txt"));
  ASSERT_EQ(dataset->size(), 1000u);
  ASSERT_EQ(dataset->class_names().size(), 1000u);
  for (size_t i = 0; i < 1000; i += 97) {
    EXPECT_EQ(dataset->label(i), static_cast<int>(i));
    const Image image = dataset->read(i);
    EXPECT_EQ(image.height, 256);
    EXPECT_EQ(image.width, 256);
  }
}

}  // namespace
}  // namespace octet
