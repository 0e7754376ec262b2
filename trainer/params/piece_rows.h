// PieceRows: copies rows of parameters between the host and the arrays that a rank owns.
#ifndef CKPT_TRAINER_PARAMS_PIECE_ROWS_H_
#define CKPT_TRAINER_PARAMS_PIECE_ROWS_H_

#include <array>
#include <cstdint>
#include <functional>
#include <span>

#include "core/base/bytes.h"
#include "core/base/result.h"
#include "trainer/device/device.h"
#include "trainer/ops/ops.h"
#include "trainer/params/param_piece.h"

namespace ckpt::trainer {

// `fill(spec, row_begin, rows, values)` writes rows of one parameter in float32.
using FillRows = std::function<Status(const ParamSpec& spec, std::int64_t row_begin,
                                      std::int64_t rows, std::span<float> values)>;
// Where the rows of a piece go on the host, in C order and float32. If it returns an empty span,
// the piece is not copied.
using PlaceRows = std::function<MutableByteSpan(const ParamPiece& piece)>;

// Its memory is allocated when it is needed first, and serves all arrays of a rank.
// Thread-safety: the rank's thread.
class PieceRows {
 public:
  // Both outlive it.
  PieceRows(Ops& ops, Device& device) : ops_(&ops), device_(&device) {}

  // Sets the pieces of `array`, each from its `main_offset` on, some rows at a time. Blocks until
  // the queue has run all of it, after a failure too. While the device takes what was written, more
  // is written. With more than one, `threads` call `fill` at once, for fewer rows each. Errors:
  // those of `fill` and of the queue, kSystem.
  Status Fill(std::span<const ParamPiece> pieces, const Tensor& array, const FillRows& fill,
              Queue& queue, int threads = 1);

  // Enqueues copies of the requested pieces of `array`. The places are valid until the queue has
  // run them. All reads use one queue. REQUIRES: a place has the size of its piece.
  // Errors: kSystem.
  Status Read(std::span<const ParamPiece> pieces, const Tensor& array, const PlaceRows& place,
              Queue& queue);

 private:
  // One half is filled while the device reads the other.
  struct Half {
    PinnedBuffer memory;
    Event read;  // the device has read what was filled last
  };

  // Fill, but does not wait for the queue.
  Status FillBlocks(std::span<const ParamPiece> pieces, const Tensor& array, const FillRows& fill,
                    Queue& queue, int threads);
  Status Reserve(std::int64_t elems);
  // A block of a cast. Elements of other dtypes are cast block by block: a whole embedding in
  // float32 would be the largest allocation of a run.
  Result<Tensor> Block(Buffer& memory, std::int64_t elems);
  // Enqueues: elements = floats of the host, cast.
  Status Write(const float* host, const Tensor& elements, Queue& queue);

  Ops* ops_;
  Device* device_;
  std::array<Half, 2> halves_;
  Buffer fill_block_;
  Buffer read_block_;
};

}  // namespace ckpt::trainer

#endif  // CKPT_TRAINER_PARAMS_PIECE_ROWS_H_
