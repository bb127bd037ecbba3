using System.Globalization;
using Google.Protobuf;
using Grpc.Core;
using Grpc.Net.Client;
using Quantra.Client;
using Stub = Quantra.V1.PredictionService.PredictionServiceClient;

namespace Quantra.Benchmark;

/// <summary>Runs calls in the order that the driver sets. Interleaving the variants spreads disturbances of the machine over all of them.</summary>
internal static class InterleavedBenchmark
{
    private static readonly Method<byte[], byte[]> Bare = new(
        MethodType.Unary,
        "quantra.v1.PredictionService",
        "Predict",
        Marshallers.Create(value => value, value => value),
        Marshallers.Create(value => value, value => value));

    /// <summary>Answers lines of stdin until its end.</summary>
    public static async Task RunAsync(string[] args)
    {
        var request = await BenchmarkPredictor.RequestAsync(args[2]);
        await using var predictor = await BenchmarkPredictor.OpenAsync(args[0], args[1]);
        using var channel = args[0] == "grpc" ? GrpcChannel.ForAddress(args[1]) : null;
        var calls = Calls(predictor, request, channel);
        while (await Console.In.ReadLineAsync() is { } line)
        {
            var (name, count) = (line.Split(' ')[0], int.Parse(line.Split(' ')[1], CultureInfo.InvariantCulture));
            Report.WriteLine((name, await calls[name](count)));
        }
    }

    private static Dictionary<string, Func<int, Task<double>>> Calls(IStockPredictor predictor, PredictionRequest request, GrpcChannel? channel)
    {
        Func<Task> predict = () => predictor.PredictAsync(request);
        var calls = new Dictionary<string, Func<int, Task<double>>>
        {
            ["predict"] = count => CallTimer.MedianMsAsync(predict, count),
            ["explain"] = count => CallTimer.MedianMsAsync(() => predictor.ExplainManyAsync(new ManyExplanationsRequest(request, [])), count),
            ["predict-bytes"] = count => CallTimer.BytesAsync(predict, count),
            ["unary"] = seconds => Throughput.OfCallsAsync(predictor, request, seconds),
            ["stream"] = seconds => Throughput.OfStreamAsync(predictor, request, seconds),
        };
        if (channel is null)
            return calls;
        var (stub, message) = (new Stub(channel), Message(request));
        Func<Task> raw = async () => await stub.PredictAsync(message, deadline: DateTime.UtcNow.AddSeconds(30));
        calls["stub"] = count => CallTimer.MedianMsAsync(raw, count);
        calls["stub-bytes"] = count => CallTimer.BytesAsync(raw, count);
        var (invoker, bytes) = (channel.CreateCallInvoker(), message.ToByteArray());
        calls["bare"] = count => CallTimer.MedianMsAsync(async () => await invoker.AsyncUnaryCall(Bare, null, default, bytes), count);
        return calls;
    }

    /// <summary>Creates the message that the client would send, once.</summary>
    private static V1.PredictRequest Message(PredictionRequest request)
    {
        var bars = request.Bars!;
        var panel = new V1.BarPanel
        {
            Symbols = { bars.Symbols },
            SessionYyyymmdd = { bars.Sessions.ToArray().Select(day => (day.Year * 10_000) + (day.Month * 100) + day.Day) },
            Open = Bytes(bars.Open),
            High = Bytes(bars.High),
            Low = Bytes(bars.Low),
            Close = Bytes(bars.Close),
            Volume = Bytes(bars.Volume),
            AdjClose = Bytes(bars.AdjustedClose),
            Interval = V1.BarInterval.Day,
        };
        return new V1.PredictRequest { Model = BenchmarkPredictor.Model, Instances = { new V1.Instance { Bars = panel } } };
    }

    private static ByteString Bytes(ReadOnlyMemory<double> column) =>
        ByteString.CopyFrom(System.Runtime.InteropServices.MemoryMarshal.AsBytes(column.Span));
}
