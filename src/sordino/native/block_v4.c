/* x86-64 with AVX-512: thirty-two registers of sixteen floats. */
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__)
#pragma GCC target("arch=x86-64-v4")
enum { LANES = 16, MOST = 12, WIDE = 1 << 20 };
#define TABLE sordino_block_v4
#include "block.inc"
#endif
