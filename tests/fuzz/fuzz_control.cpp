// What somebody who knows the secret says on the control channel, in any order, to an Endpoint that
// was dialled and to one that dials. Meanwhile the Endpoint serves others.
#include <atomic>
#include <cerrno>
#include <string>
#include <thread>

#include "base/acceptor.hpp"
#include "couple.hpp"
#include "stranger.hpp"

namespace {

using namespace zerohop;
using namespace zerohop::engine;
using zerohop::fuzz::Input;
using zerohop::fuzz::require;
using zerohop::fuzz::Stranger;

constexpr std::size_t kMostSteps = 32;
constexpr int kLookAfterOthers = 256;  // inputs

struct GivenUp {};
std::atomic<bool> given_up{false};  // what the stranger has to say to a dialler is said

EndpointOptions of_host(const char* name) {
  EndpointOptions chosen = testing::options(name);
  chosen.p2p = true;
  chosen.interrupt = [] {
    if (given_up) throw GivenUp();
  };
  return chosen;
}

struct Host {
  Host() {
    memory.emplace(testing::host_array(endpoint, {4096}));
    endpoint.share("kv", *memory);
  }
  Endpoint endpoint{of_host("attacked")};
  std::optional<Memory> memory;
};

Host& host() {
  static Host* const only = new Host;  // its threads run to the end of the process
  return *only;
}

fuzz::Key dialler() {
  static const fuzz::Key only = Stranger::make_key();
  return only;
}

fuzz::Key dialled_one() {
  static const fuzz::Key only = Stranger::make_key();
  return only;
}

ControlMessage take_message(Input& input) {
  const std::uint64_t request = input.byte();
  switch (input.byte() % 11) {
    case 0: return Ready{};
    case 1: return Lookup{.request = request, .name = input.flag() ? "kv" : input.text(20)};
    case 2: return Found{.request = request, .memory = host().memory->remote().to_bytes()};
    case 3: return Found{.request = request, .memory = input.blob()};
    case 4: return NotFound{.request = request};
    case 5: return Heartbeat{.sequence = request};
    case 6: {
      const std::uint8_t rail = input.byte() % 4 == 0 ? input.byte() : 0;
      const auto queue_pair =
          input.flag() ? fuzz::take_queue_pair(input) : rdma::QueuePairAddress{};
      return Requeue{.rail = rail, .generation = input.byte(), .queue_pair = queue_pair};
    }
    case 7: return Bye{.reason = input.text(20), .cause = input.byte()};
    case 8: {
      const std::uint8_t rail = input.byte() % 4 == 0 ? input.byte() : 0;
      return OpenDirect{
          .request = request, .rail = rail, .queue_pair = fuzz::take_queue_pair(input)};
    }
    case 9:
      return DirectOpened{.request = request,
                          .queue_pair = fuzz::take_queue_pair(input),
                          .slots = input.take<std::uint64_t>(),
                          .slots_key = input.byte(),
                          .refusal = input.text(20)};
    default:
      if (request % 4 == 1) {
        const bool known = input.flag();
        return SumUp{.request = request,
                     .parts = {{known ? host().memory->remote().to_bytes() : input.blob(),
                                input.byte(), input.take<std::uint16_t>()}}};
      }
      if (request % 4 == 2) {
        return SummedUp{
            .request = request, .sums = {input.byte(), input.byte()}, .refusal = input.text(8)};
      }
      return CloseDirect{.request = request};
  }
}

void talk(Input& input, Stranger& stranger, bool begins_well) {
  if (begins_well) stranger.greet(fuzz::take_hello(input, stranger.id()));
  for (std::size_t step = 0; step < kMostSteps && !input.empty(); ++step) {
    switch (input.byte() % 8) {
      case 0: stranger.greet(fuzz::take_hello(input, stranger.id())); break;
      case 1: stranger.say(input.blob()); break;
      case 2: stranger.settle(); break;
      default: stranger.say(take_message(input)); break;
    }
  }
  stranger.settle();
}

void be_dialler(Input& input) {
  Stranger stranger = Stranger::dial(host().endpoint.address(), dialler());
  stranger.hear_until([] { return true; });
  talk(input, stranger, input.byte() % 8 != 0);
}

void be_dialled(Input& input) {
  const UniqueFd listener = listen_tcp("127.0.0.1");
  Address address = dialled_one()->address();
  address.host = "127.0.0.1";
  address.port = local_port(listener.get());
  given_up = false;
  std::string refusal;
  std::thread caller([&] {
    const Deadline until = testing::soon();
    for (bool again = true; again && !given_up;) {
      again = false;
      try {
        host().endpoint.connect(address.to_bytes(), until);
      } catch (const GivenUp&) {  // one that says that it dials as well is waited for
      } catch (const AuthenticationError& error) {  // the last one's end has not been seen yet
        refusal = error.what();
        again = !until.passed();
        std::this_thread::yield();
      } catch (const Error& error) {
        refusal = error.what();
      }
    }
  });
  pollfd waited{.fd = listener.get(), .events = POLLIN, .revents = 0};
  // libFuzzer's alarm interrupts it now and then.
  while (::poll(&waited, 1, 10'000) < 0 && errno == EINTR) {
  }
  UniqueFd fd = accept_connection(listener.get());
  const bool dialled = static_cast<bool>(fd);
  if (dialled) {
    Stranger stranger(Channel::accept(std::move(fd), address.secret), dialled_one());
    talk(input, stranger, input.byte() % 8 != 0);
  }
  given_up = true;
  caller.join();
  given_up = false;
  require(dialled, ("connect() dials; it said: " + refusal).c_str());
}

// Others are served, whatever was said before.
void check_others() {
  static const auto honest = new Endpoint(of_host("honest"));
  const auto peer = honest->connect(host().endpoint.address().to_bytes(), testing::soon());
  require(peer->lookups().find("kv", testing::soon(), true).has_value(),
          "others find what is shared");
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t nbytes) {
  static int inputs = 0;
  Input input(data, nbytes);
  input.byte() % 4 == 0 ? be_dialled(input) : be_dialler(input);
  if (inputs++ % kLookAfterOthers == 0) check_others();
  return 0;
}
