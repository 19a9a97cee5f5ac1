/* Any processor: registers of four or eight floats, whatever the compiler makes of them. */
enum { LANES = 8, MOST = 6, WIDE = 16 };
#define TABLE sordino_block_plain
#include "block.inc"
