#!/usr/bin/env bash
# Links the programs of run.sh from the worktree's build (after PATH octet_cuda_kernels octet_cuda test_kernels_conv2d_cuda).
set -e
cd PATH; here=PATH; mkdir -p $here/bin $here/lib
inc="-std=c++20 -O2 -ffp-contract=off -I. -I/usr/local/cuda/include"; t=/tmp/hopper_link; mkdir -p $t
for f in bench debug; do g++ $inc -Wno-missing-field-initializers -c $here/src/$f.cpp -o $t/$f.o; done
nvcc -std=c++20 --expt-relaxed-constexpr -O3 -I. -gencode=arch=compute_90a,code=sm_90a -c $here/src/probe.cu -o $t/probe.o
libs="build/kernels/liboctet_cuda_kernels.a build/kernels/liboctet_kernels.a $(find build/src/cuda build/src/common -name '*.a' | tr '\n' ' ') build/kernels/liboctet_kernels.a"
sys="-static-libstdc++ -static-libgcc -lfmt /usr/local/cuda/lib64/libcudart_static.a -ldl -lrt -lpthread -Wl,-rpath,\$ORIGIN/../lib"
T=build/tests/kernels/CMakeFiles/test_kernels_conv2d_cuda.dir
g++ -o $here/bin/probe $t/probe.o -Wl,--start-group $libs -Wl,--end-group $sys
g++ -o $here/bin/bench $t/bench.o -Wl,--start-group $libs -Wl,--end-group $sys
g++ -o $here/bin/debug $t/debug.o $T/conv2d_cuda.cpp.o $T/conv2d_random.cpp.o $T/guarded_bytes.cpp.o -Wl,--start-group $libs -Wl,--end-group /usr/lib/x86_64-linux-gnu/libgtest.a $sys
g++ -o $here/bin/test_kernels_conv2d_cuda $T/*.o -Wl,--start-group $libs -Wl,--end-group /usr/lib/x86_64-linux-gnu/libgtest.a /usr/lib/x86_64-linux-gnu/libgtest_main.a $(find build -name 'libocte*test_source*.a') $sys
cp -L /usr/lib/x86_64-linux-gnu/libfmt.so.9 $here/lib/
strip $here/bin/*; ls -la $here/bin; du -sh $here
