using Quantra.Benchmark;

// The C# part of benchmarks/dotnet.py. Each subject prints its results as lines of JSON. `turns` reads lines "NAME COUNT" from stdin and answers
// each with a line. DOOR is grpc, embedded or managed, WHERE an address or a folder of models.
//
//   turns DOOR WHERE BARS                 names: predict, stub, bare, predict-bytes, stub-bytes, unary, stream
//   held DOOR WHERE BARS                  time that the caller's thread is blocked by a first call, and by one of 1,000 instances
//   cancelled DOOR WHERE BARS             duration of a call right after a cancelled one of 1,000 instances
//   burst grpc WHERE BARS COUNT           COUNT calls at once
//   silent grpc WHERE BARS                one call per line of stdin, while the driver drops the connection silently
//   restarted MODELS                      start of a supervised server, and restart after a kill
//   parent MODELS                         a supervised server, until the driver kills this process
//   csv FILE                              reads a file of bars
//   first MODEL BARS                      one forecast of a new process without Python, and its memory
//   warm MODEL BARS                       first calls of a new process without Python, relative to later ones
//   ending MODELS BARS                    exit of a process with an embedded predictor
Func<string[], Task> subject = args[0] switch
{
    "turns" => InterleavedBenchmark.RunAsync,
    "held" => BlockingBenchmark.RunAsync,
    "cancelled" => CancellationBenchmark.RunAsync,
    "burst" => BurstBenchmark.RunAsync,
    "silent" => SilentConnectionBenchmark.RunAsync,
    "restarted" => SupervisedServerBenchmark.RestartAsync,
    "parent" => SupervisedServerBenchmark.WaitAsync,
    "csv" => CsvBenchmark.RunAsync,
    "first" => ColdStartBenchmark.FirstAsync,
    "warm" => ColdStartBenchmark.WarmAsync,
    "ending" => ExitBenchmark.RunAsync,
    _ => throw new ArgumentException($"unknown subject {args[0]}"),
};
await subject(args[1..]);
