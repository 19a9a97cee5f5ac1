/* x86-64 with AVX-512: a tile fills sixteen of thirty-two registers. */
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__)
#pragma GCC target("arch=x86-64-v4")
enum { LANES = 16, ROWS = 8 };
#define TABLE sordino_products_v4
#include "product.inc"
#endif
