# SPDX-License-Identifier: Apache-2.0
# octet_proto(target FILE): C++ of a protobuf schema, for protobuf's lite runtime. protobuf is linked in statically and only its lite part,
# its symbols hidden: LibTorch brings a protobuf of its own, another version, and neither may see the other's.
find_program(protoc protoc)
find_path(protobuf_include_dir google/protobuf/message_lite.h)
find_library(protobuf_lite libprotobuf-lite.a)
foreach(part protoc protobuf_include_dir protobuf_lite)
  if(NOT ${part})
    message(FATAL_ERROR "ONNX files and TensorBoard's need protobuf (${part} is missing). Run tools/setup.sh, or apt-get install "
                        "libonnx-dev libprotobuf-dev protobuf-compiler, or build without: -DOCTET_ONNX=OFF")
  endif()
endforeach()

function(octet_proto target schema)
  get_filename_component(name ${schema} NAME_WE)
  get_filename_component(folder ${schema} DIRECTORY)
  set(generated ${CMAKE_CURRENT_BINARY_DIR}/generated)
  file(MAKE_DIRECTORY ${generated})
  add_custom_command(
    OUTPUT ${generated}/${name}.pb.cc ${generated}/${name}.pb.h
    COMMAND ${protoc} --proto_path=${folder} --cpp_out=lite:${generated} ${schema}
    DEPENDS ${schema}
    VERBATIM)
  add_library(${target} STATIC ${generated}/${name}.pb.cc ${generated}/${name}.pb.h)
  target_compile_options(${target} PRIVATE -w)
  target_include_directories(${target} SYSTEM PUBLIC ${generated} ${protobuf_include_dir})
  target_link_libraries(${target} PUBLIC ${protobuf_lite} Threads::Threads)
  target_link_options(${target} INTERFACE LINKER:--exclude-libs,libprotobuf-lite.a)
endfunction()
