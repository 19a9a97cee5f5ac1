/* x86-64 with AVX2: sixteen registers of eight floats. */
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__)
#pragma GCC target("arch=x86-64-v3")
enum { LANES = 8, MOST = 6, WIDE = 1024 };
#define TABLE sordino_block_v3
#include "block.inc"
#endif
