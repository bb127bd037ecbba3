using Quantra.Benchmark;

// What benchmarks/dotnet.py times of C#. Each subject prints what it found as a line of JSON; `turns` answers a line on stdin, "NAME COUNT",
// with one, as often as it is asked. DOOR is grpc or embedded, WHERE an address or a folder of models.
//
//   turns DOOR WHERE BARS                 names: predict, stub, bare, predict-bytes, stub-bytes, unary, stream
//   held DOOR WHERE BARS                  how long the caller's thread is held by a first call, and by one of 1,000 instances
//   cancelled DOOR WHERE BARS             how long a call takes right after one of 1,000 instances that was cancelled
//   burst grpc WHERE BARS COUNT           so many calls at once
//   silent grpc WHERE BARS                asks until stdin ends; the driver cuts the connection off without a word
//   restarted MODELS                      a server of the program's own: its start, and its start after it was killed
//   parent MODELS                         the same, until the driver kills this process
//   csv FILE                              reads a file of bars
//   ending MODELS BARS                    a predictor in this process, to its end
Func<string[], Task> subject = args[0] switch
{
    "turns" => Turns.RunAsync,
    "held" => Held.RunAsync,
    "cancelled" => Cancelled.RunAsync,
    "burst" => Burst.RunAsync,
    "silent" => Silent.RunAsync,
    "restarted" => Supervised.RestartAsync,
    "parent" => Supervised.WaitAsync,
    "csv" => Csv.RunAsync,
    "ending" => Ending.RunAsync,
    _ => throw new ArgumentException($"there is no subject {args[0]}"),
};
await subject(args[1..]);
