/* x86-64 with AVX2: a tile fills eight of sixteen registers. */
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__)
#pragma GCC target("arch=x86-64-v3")
enum { LANES = 8, ROWS = 4 };
#define TABLE sordino_products_v3
#include "product.inc"
#endif
