#include "rdma/mlx5_command.hpp"

#include <endian.h>

#include <cstdio>
#include <cstring>
#include <stdexcept>

namespace zerohop::rdma::mlx5 {
namespace {

constexpr Field kOpcode{0, 16};
constexpr Field kStatus{0, 8};
constexpr Field kSyndrome{0x20, 32};
constexpr unsigned kWord = 32;

std::uint32_t word_at(std::span<const std::byte> bytes, unsigned bit) noexcept {
  std::uint32_t word = 0;
  std::memcpy(&word, &bytes[bit / kWord * sizeof word], sizeof word);
  return be32toh(word);
}

std::uint64_t get(std::span<const std::byte> bytes, Field field) noexcept {
  if (field.bits == 2 * kWord) {
    return std::uint64_t{word_at(bytes, field.at)} << kWord | word_at(bytes, field.at + kWord);
  }
  const unsigned below = kWord - field.at % kWord - field.bits;
  const std::uint64_t mask = (std::uint64_t{1} << field.bits) - 1;
  return word_at(bytes, field.at) >> below & mask;
}

void set(std::span<std::byte> bytes, Field field, std::uint64_t value) noexcept {
  if (field.bits == 2 * kWord) {
    set(bytes, {field.at, kWord}, value >> kWord);
    return set(bytes, {field.at + kWord, kWord}, value & 0xffffffff);
  }
  const unsigned below = kWord - field.at % kWord - field.bits;
  const auto mask = static_cast<std::uint32_t>(((std::uint64_t{1} << field.bits) - 1) << below);
  const std::uint32_t word =
      (word_at(bytes, field.at) & ~mask) | (static_cast<std::uint32_t>(value << below) & mask);
  const std::uint32_t shown = htobe32(word);
  std::memcpy(&bytes[field.at / kWord * sizeof shown], &shown, sizeof shown);
}

// As include/linux/mlx5/device.h names them (MLX5_CMD_STAT_...).
const char* status_name(std::uint64_t status) noexcept {
  switch (status) {
    case 0x00: return "OK";
    case 0x01: return "INT_ERR (internal error)";
    case 0x02: return "BAD_OP_ERR (the firmware does not know this command)";
    case 0x03: return "BAD_PARAM_ERR";
    case 0x04: return "BAD_SYS_STATE_ERR";
    case 0x05: return "BAD_RES_ERR (no such resource)";
    case 0x06: return "RES_BUSY";
    case 0x08: return "LIM_ERR (a limit of the adapter)";
    case 0x09: return "BAD_RES_STATE_ERR";
    case 0x0a: return "IX_ERR (bad index)";
    case 0x0f: return "NO_RES_ERR (out of resources)";
    case 0x10: return "BAD_QP_STATE_ERR";
    case 0x50: return "BAD_INP_LEN_ERR";
    case 0x51: return "BAD_OUTP_LEN_ERR";
    default: return "an unknown status";
  }
}

}  // namespace

const char* opcode_name(Opcode opcode) noexcept {
  switch (opcode) {
    case Opcode::create_cq: return "CREATE_CQ";
    case Opcode::create_qp: return "CREATE_QP";
    case Opcode::rst_to_init: return "RST2INIT_QP";
    case Opcode::init_to_rtr: return "INIT2RTR_QP";
    case Opcode::rtr_to_rts: return "RTR2RTS_QP";
    case Opcode::query_qp: return "QUERY_QP";
  }
  return "a command";
}

Command::Command(Opcode opcode) : opcode_(opcode) {
  set(bytes_, kOpcode, static_cast<std::uint64_t>(opcode));
}

Command& Command::with(Field field, std::uint64_t value) {
  if (field.bits < 64 && value >> field.bits != 0) {
    throw std::invalid_argument(std::string(opcode_name(opcode_)) + " has " +
                                std::to_string(field.bits) + " bits for " + std::to_string(value));
  }
  set(bytes_, field, value);
  return *this;
}

Command& Command::with_gid(unsigned at, std::span<const std::uint8_t, 16> gid) {
  std::memcpy(&bytes_[at / 8], gid.data(), gid.size());
  return *this;
}

std::uint64_t Command::answered(Field field) const noexcept { return get(answer_, field); }

std::string Command::outcome() const {
  char syndrome[16];
  std::snprintf(syndrome, sizeof syndrome, "0x%x", static_cast<unsigned>(answered(kSyndrome)));
  return std::string(status_name(answered(kStatus))) + ", syndrome " + syndrome;
}

}  // namespace zerohop::rdma::mlx5
