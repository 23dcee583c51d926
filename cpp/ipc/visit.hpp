// A visit at another process's doorway: its memory within reach, copied from and to by this one.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>

#include "base/deadline.hpp"
#include "base/runs.hpp"
#include "base/unique_fd.hpp"
#include "ipc/hazards.hpp"
#include "ipc/knock.hpp"
#include "ipc/mapping.hpp"
#include "ipc/window.hpp"

namespace zerohop::ipc {

enum class Direction { write, read };

enum class Copied {
  all,
  revoked,   // the exposure was closed, before or meanwhile
  unmapped,  // the kernel finds no such memory (any more), here or there
  gone,      // the process has ended
  stopped,   // as the caller wished
};

class Visit {
 public:
  // Knocks, and takes in what is given. Throws RouteUnavailable with the reason, TransferTimeout.
  static std::shared_ptr<Visit> begin(const std::string& doorway, const Token& token,
                                      const Deadline& deadline);

  // What the owner exposes under this key, asked for once and remembered; its `trouble` is to be
  // looked at. Null: nothing, or no more. `within`: how long the owner may take to answer. Throws
  // RouteUnavailable when it has left, TransferTimeout, Error.
  std::shared_ptr<const Window> open(std::uint64_t key, Deadline::Seconds within);

  // Copies all runs; `a` of each is local, `b` is the owner's and lies in the window, which the
  // caller has made sure of. `nbytes` counts what was copied. In pieces of kPiece bytes, between
  // which a revocation takes effect, and `stop`. Never allocates.
  Copied copy(const Window& window, Direction direction, Runs& runs, std::uint64_t& nbytes,
              const std::atomic<bool>& stop) noexcept;
  // The same for a single run of at most kPiece bytes in mapped pages.
  Copied copy(const Window& window, Direction direction, const Run& run) noexcept;

  static constexpr std::uint64_t kPiece = std::uint64_t{4} << 20;

  std::byte* board() const noexcept { return board_->data(); }
  // Wakes who sleeps beside the board.
  void ring() const noexcept;

 private:
  explicit Visit(UniqueFd socket) : socket_(std::move(socket)) {}
  void knock(const Token& token, const Deadline& deadline);
  void take(const Given& given, UniqueFd descriptor);
  void find_process(const Given& given);
  std::shared_ptr<const Window> ask(std::uint64_t key, const Deadline& deadline);
  bool stands(const Window& window) const noexcept;
  bool gone() const noexcept;
  static void copy_run(const Window& window, Direction direction, const Run& run) noexcept;
  Copied copy_pages(const Window& window, Direction direction, Runs& runs, std::uint64_t& nbytes,
                    const std::atomic<bool>& stop) noexcept;
  Copied copy_process(const Window& window, Direction direction, Runs& runs, std::uint64_t& nbytes,
                      const std::atomic<bool>& stop) noexcept;

  const UniqueFd socket_;
  std::unique_ptr<const Mapping> ledger_;
  std::unique_ptr<const Mapping> hazards_;
  std::unique_ptr<const Mapping> board_;
  UniqueFd bell_;
  int process_ = 0;             // of the owner, as this process sees it
  std::string process_reason_;  // why its memory cannot be reached; empty: it can

  std::mutex mutex_;  // guards the socket and windows_
  std::unordered_map<std::uint64_t, std::shared_ptr<const Window>> windows_;
};

}  // namespace zerohop::ipc
