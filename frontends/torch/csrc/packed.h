// packed.h: packed sequences as rows. Step t has the rows of the sequences that are longer than t. Lengths are data of
// the programs, not dims.
#pragma once

#include "kernels.h"

namespace headrace {

// A partial map between two lists of rows, in the host's memory: for each row of the one its place in the other, or -1.
struct RowMap {
  Tensor from; // of the result's rows in the source
  Tensor back; // of the source's rows in the result

  RowMap inverse() const {
    return {back, from};
  }
};

// Rows of x [rows, ..] at `map.from`. A row without a place is filled: `fill` has a number for each of its equal parts.
// It has a gradient, which has one, too.
Tensor take_rows(const Tensor &x, const RowMap &map, const std::vector<Scalar> &fill);

class Packing {
public:
  // None if these are not packed sequences of a device of ours; torch's own function then runs, or has the error.
  static std::optional<Packing> of(c10::DispatchKeySet keys, const Tensor &data, const Tensor &batch_sizes);
  static std::optional<Packing> of_lengths(const Tensor &lengths);

  int64_t steps() const {
    return static_cast<int64_t>(sizes_.size());
  }
  int64_t batch() const {
    return sizes_[0];
  }
  int64_t rows() const {
    return begins_.back();
  }
  Tensor batch_sizes() const; // in the host's memory
  Tensor lengths() const;
  // From packed rows to [steps, batch], or to [batch, steps] by sequence. In reverse each sequence begins with its end.
  RowMap to_padded(int64_t steps, bool by_sequence, bool reverse) const;
  RowMap to_last() const; // to the last row of each sequence

private:
  explicit Packing(std::vector<int64_t> sizes);

  std::vector<int64_t> sizes_, begins_; // rows of each step; its first row, and the end
  std::vector<int64_t> lengths_;        // steps of each sequence
};

} // namespace headrace
