using System.Diagnostics;
using System.Globalization;
using Grpc.Core;
using Grpc.Net.Client;
using Quantra.Client;
using Quantra.Client.Embedded;

// Times calls when the driver (benchmarks/dotnet.py) asks for it: the answer to each line on stdin, "NAME CALLS", is the
// median time of that many calls in milliseconds.
//
//   Quantra.Benchmark grpc ADDRESS BARS ECHO_ADDRESS ECHO_BYTES        names: predict, echo
//   Quantra.Benchmark embedded MODELS BARS                              names: predict
var bars = await BarPanel.ReadCsvAsync(args[2]);
var request = new PredictionRequest("stock", bars);
await using var predictor = await OpenAsync(args[0], args[1]);
var calls = new Dictionary<string, Func<Task>> { ["predict"] = () => predictor.PredictAsync(request) };
using var echo = args[0] == "grpc" ? GrpcChannel.ForAddress(args[3]) : null;
if (echo is not null)
{
    var bytes = Marshallers.Create(value => value, value => value);
    var method = new Method<byte[], byte[]>(MethodType.Unary, "echo", "Echo", bytes, bytes);
    var (invoker, body) = (echo.CreateCallInvoker(), new byte[int.Parse(args[4], CultureInfo.InvariantCulture)]);
    calls["echo"] = async () => await invoker.AsyncUnaryCall(method, null, default, body);
}

while (await Console.In.ReadLineAsync() is { } turn)
{
    var (name, count) = (turn.Split(' ')[0], int.Parse(turn.Split(' ')[1], CultureInfo.InvariantCulture));
    Console.WriteLine((await MedianAsync(calls[name], count)).ToString("R", CultureInfo.InvariantCulture));
}

static async Task<IStockPredictor> OpenAsync(string door, string where) => door == "embedded"
    ? await EmbeddedPredictor.OpenAsync(new EmbeddedPredictorOptions { Models = where, Device = "cpu" })
    : new QuantraClient(new Uri(where));

static async Task<double> MedianAsync(Func<Task> call, int count)
{
    var times = new double[count];
    for (var index = 0; index < count; index++)
    {
        var start = Stopwatch.GetTimestamp();
        await call();
        times[index] = Stopwatch.GetElapsedTime(start).TotalMilliseconds;
    }

    Array.Sort(times);
    return times[count / 2];
}
