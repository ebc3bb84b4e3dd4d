/* layout.h: boxes and arrows in layers, from top to bottom: places of boxes, and paths of arrows between them.
 *
 * Source of the method: K. Sugiyama, S. Tagawa, M. Toda, "Methods for Visual Understanding of Hierarchical System
 * Structures", IEEE Transactions on Systems, Man, and Cybernetics 11 (1981): layers by the longest path, places in a
 * layer by the mean of the neighbours. An arrow over several layers passes a narrow place in each of them.
 */
#ifndef HEADRACE_TOOLS_LAYOUT_H_
#define HEADRACE_TOOLS_LAYOUT_H_

#include "base/vector.h"
#include "headrace/status.h"

typedef struct layout_box {
  int width, height; /* given; pixels */
  int layer;
  double x, y; /* of the middle of the upper edge */
} layout_box;

/* An arrow between boxes; to > from. Its places in the layers between them are boxes without height. */
typedef struct layout_arrow {
  int from, to;
  int first, count; /* of these places among the boxes; 0: a direct line */
} layout_arrow;

typedef struct layout {
  HR_VECTOR(layout_box) boxes; /* the caller's, then places of arrows */
  HR_VECTOR(layout_arrow) arrows;
  double width, height;
} layout;

/* Boxes and arrows of the caller get their places. */
HR_MUST_USE hr_status layout_arrange(layout *l);
void layout_fini(layout *l);

#endif
