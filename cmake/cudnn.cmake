# SPDX-License-Identifier: Apache-2.0
# Imported target octet_cudnn: headers of cuDNN 9 and of its frontend 1.x. The libraries are loaded at run time
# (src/engine/peers/peer.h); the linker only notes where wheels and toolkit keep them.
get_filename_component(wheels ${OCTET_TORCH_DIR} REALPATH)  # .deps/torch may be a link; its neighbours lie where it points to
get_filename_component(wheels ${wheels} DIRECTORY)
find_path(OCTET_CUDNN_FRONTEND_DIR cudnn_frontend.h NO_DEFAULT_PATH
  PATHS ${wheels}/include ${PROJECT_SOURCE_DIR}/.deps/include
  DOC "Folder of cudnn_frontend.h (wheel nvidia-cudnn-frontend==1.32.0)")
find_path(OCTET_CUDNN_DIR cudnn.h
  HINTS ${wheels}/nvidia/cudnn/include ${PROJECT_SOURCE_DIR}/.deps/nvidia/cudnn/include ${CUDAToolkit_INCLUDE_DIRS}
  DOC "Folder of cudnn.h (wheel nvidia-cudnn-cu13, or cuDNN beside the CUDA toolkit)")
foreach(header IN ITEMS "OCTET_CUDNN_FRONTEND_DIR;cudnn_frontend.h" "OCTET_CUDNN_DIR;cudnn.h")
  list(GET header 0 variable)
  list(GET header 1 file)
  if(NOT ${variable})
    message(FATAL_ERROR "No ${file}, which engine cudnn needs. Run tools/setup.sh, or name its folder: -D${variable}=")
  endif()
endforeach()
add_library(octet_cudnn INTERFACE)
target_include_directories(octet_cudnn SYSTEM INTERFACE ${OCTET_CUDNN_FRONTEND_DIR} ${OCTET_CUDNN_DIR} ${CUDAToolkit_INCLUDE_DIRS})
target_compile_definitions(octet_cudnn INTERFACE NV_CUDNN_FRONTEND_USE_DYNAMIC_LOADING CUDNN_FRONTEND_SKIP_JSON_LIB)
file(GLOB cudnn_wheels ${wheels}/nvidia/*/lib ${PROJECT_SOURCE_DIR}/.deps/nvidia/*/lib)
foreach(folder ${cudnn_wheels} ${CUDAToolkit_LIBRARY_DIR})
  target_link_options(octet_cudnn INTERFACE LINKER:-rpath,${folder})
endforeach()
target_link_libraries(octet_cudnn INTERFACE ${CMAKE_DL_LIBS})
