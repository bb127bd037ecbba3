using System.Globalization;
using System.Reflection;
using Google.Protobuf;
using Google.Protobuf.WellKnownTypes;
using Grpc.Core;
using Grpc.Net.Client;

namespace Quantra.Client.Tests;

/// <summary>The client alone.</summary>
public sealed class QuantraClientTests(Doors doors)
{
    private static readonly Uri Nobody = new("http://127.0.0.1:1");

    private static CancellationToken Token => TestContext.Current.CancellationToken;

    [Fact]
    public async Task A_server_that_is_not_there_is_UNAVAILABLE()
    {
        await using var client = new QuantraClient(Nobody);
        var failure = await Assert.ThrowsAsync<QuantraException>(() => client.ListModelsAsync(Token));
        Assert.Equal((StatusCode.Unavailable, QuantraReason.Unavailable), (failure.Code, failure.Reason));
    }

    [Fact]
    public async Task A_borrowed_channel_stays_open()
    {
        using var channel = GrpcChannel.ForAddress(doors.Address);
        await new QuantraClient(channel, new QuantraClientOptions()).DisposeAsync();
        await using var second = new QuantraClient(channel, new QuantraClientOptions());
        Assert.NotEmpty(await second.ListModelsAsync(Token));
    }

    [Fact]
    public async Task An_answer_beyond_the_limit_is_REQUEST_TOO_LARGE()
    {
        await using var client = new QuantraClient(doors.Address, new QuantraClientOptions { MaxMessageBytes = 100 });
        var failure = await Assert.ThrowsAsync<QuantraException>(() => client.ListModelsAsync(Token));
        Assert.Equal(QuantraReason.RequestTooLarge, failure.Reason);
    }

    [Theory]
    [InlineData("quantra", QuantraReason.QueueFull)]
    [InlineData("elsewhere.example", QuantraReason.Unavailable)]
    public async Task Details_of_another_system_are_no_reason_of_ours(string domain, string reason)
    {
        var status = new Rpc.Status { Details = { Any.Pack(new Rpc.ErrorInfo { Reason = QuantraReason.QueueFull, Domain = domain }) } };
        await using var client = new QuantraClient(new Failing(status), new QuantraClientOptions());
        var failure = await Assert.ThrowsAsync<QuantraException>(() => client.ListModelsAsync(Token));
        Assert.Equal(reason, failure.Reason);
    }

    [Fact]
    public void Options_out_of_range_are_refused()
    {
        Assert.Throws<ArgumentOutOfRangeException>(() => new QuantraClientOptions { Timeout = TimeSpan.Zero });
        Assert.Throws<ArgumentOutOfRangeException>(() => new QuantraClientOptions { Timeout = TimeSpan.MaxValue });
        Assert.Throws<ArgumentOutOfRangeException>(() => new QuantraClientOptions { MaxMessageBytes = 0 });
    }

    [Fact]
    public void Every_reason_of_Python_has_a_name()
    {
        var names = typeof(QuantraReason).GetFields(BindingFlags.Public | BindingFlags.Static);
        Assert.Equal(doors.Expected.Reasons.Order(), names.Select(name => (string)name.GetRawConstantValue()!).Order());
    }

    [Fact]
    public async Task A_forecast_prints_the_same_table_in_every_culture()
    {
        var bars = BarPanel.ReadCsv(doors.PathOf("bars.csv")).Select("AAPL");
        var forecast = await doors.Grpc.PredictAsync(new PredictionRequest("small", bars), Token);
        var commas = (CultureInfo)CultureInfo.InvariantCulture.Clone();
        commas.NumberFormat.NumberDecimalSeparator = ",";
        var (before, plain) = (CultureInfo.CurrentCulture, forecast.ToString());
        CultureInfo.CurrentCulture = commas;
        try
        {
            Assert.Equal(plain, forecast.ToString());
        }
        finally
        {
            CultureInfo.CurrentCulture = before;
        }

        Assert.Contains("small@1 as of 2013-03-01", plain, StringComparison.Ordinal);
        Assert.Contains(forecast.Price("AAPL", 20, 0.9).ToString("F4", CultureInfo.InvariantCulture), plain, StringComparison.Ordinal);
        Assert.Equal(12, forecast.Table().Count);
        Assert.Throws<ArgumentException>(() => forecast.Value("IBM", 5, 0.5));
    }

    /// <summary>Fails every call as UNAVAILABLE, with these details.</summary>
    private sealed class Failing(Rpc.Status details) : CallInvoker
    {
        public override AsyncUnaryCall<TResponse> AsyncUnaryCall<TRequest, TResponse>(
            Method<TRequest, TResponse> method,
            string? host,
            CallOptions options,
            TRequest request)
        {
            var trailers = new Metadata { { "grpc-status-details-bin", details.ToByteArray() } };
            var failure = Task.FromException<TResponse>(new RpcException(new Status(StatusCode.Unavailable, ""), trailers));
            return new(failure, Task.FromResult(trailers), () => Status.DefaultCancelled, () => trailers, () => { });
        }

        public override TResponse BlockingUnaryCall<TRequest, TResponse>(
            Method<TRequest, TResponse> method, string? host, CallOptions options, TRequest request) => throw new NotSupportedException();

        public override AsyncServerStreamingCall<TResponse> AsyncServerStreamingCall<TRequest, TResponse>(
            Method<TRequest, TResponse> method, string? host, CallOptions options, TRequest request) => throw new NotSupportedException();

        public override AsyncClientStreamingCall<TRequest, TResponse> AsyncClientStreamingCall<TRequest, TResponse>(
            Method<TRequest, TResponse> method, string? host, CallOptions options) => throw new NotSupportedException();

        public override AsyncDuplexStreamingCall<TRequest, TResponse> AsyncDuplexStreamingCall<TRequest, TResponse>(
            Method<TRequest, TResponse> method, string? host, CallOptions options) => throw new NotSupportedException();
    }
}
