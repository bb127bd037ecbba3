using System.Globalization;
using System.Net;
using System.Net.Sockets;
using System.Reflection;
using Google.Protobuf;
using Google.Protobuf.WellKnownTypes;
using Grpc.Core;
using Grpc.Net.Client;

namespace Quantra.Client.Tests;

/// <summary>The client without a real server.</summary>
public sealed class QuantraClientTests(PredictorFixture fixture)
{
    private static readonly Uri UnusedAddress = new("http://127.0.0.1:1");

    private static CancellationToken Token => TestContext.Current.CancellationToken;

    [Fact]
    [Trait(PredictorFixture.Category, PredictorFixture.Slow)]
    public async Task A_missing_server_is_UNAVAILABLE()
    {
        await using var client = new QuantraClient(UnusedAddress);
        var failure = await Assert.ThrowsAsync<QuantraException>(() => client.ListModelsAsync(Token));
        Assert.Equal((QuantraStatus.Unavailable, QuantraReason.Unavailable), (failure.Code, failure.Reason));
    }

    [Theory]
    [InlineData("localhost:50051", "write http://localhost:50051, or https://")]
    [InlineData("grpc://10.0.0.7:50051", "write http://10.0.0.7:50051, or https://")]
    [InlineData("desktop", "write http://desktop, or https://")]
    public void An_address_without_a_scheme_is_rejected(string address, string expected)
    {
        var failure = Assert.Throws<ArgumentException>(() => new QuantraClient(new Uri(address, UriKind.RelativeOrAbsolute)));
        Assert.Equal("address", failure.ParamName);
        Assert.Contains(expected, failure.Message, StringComparison.Ordinal);
    }

    [Fact]
    [Trait(PredictorFixture.Category, PredictorFixture.Slow)]
    public async Task A_dead_connection_is_replaced_within_the_call()
    {
        await using var relay = new TcpRelay(fixture.Address);
        var hasty = new QuantraClientOptions { PingInterval = TimeSpan.FromSeconds(1), PingTimeout = TimeSpan.FromSeconds(1) };
        await using var client = new QuantraClient(relay.Address, hasty);
        await client.ListModelsAsync(Token);
        relay.FallSilent();
        Assert.NotEmpty(await client.ListModelsAsync(Token));
    }

    [Fact]
    [Trait(PredictorFixture.Category, PredictorFixture.Slow)]
    public async Task Without_retries_a_dead_connection_is_UNAVAILABLE_and_the_next_call_reconnects()
    {
        await using var relay = new TcpRelay(fixture.Address);
        var hasty = new QuantraClientOptions
        {
            PingInterval = TimeSpan.FromSeconds(1),
            PingTimeout = TimeSpan.FromSeconds(1),
            MaxAttempts = 1,
        };
        await using var client = new QuantraClient(relay.Address, hasty);
        await client.ListModelsAsync(Token);
        relay.FallSilent();
        var failure = await Assert.ThrowsAsync<QuantraException>(() => client.ListModelsAsync(Token));
        Assert.Equal((QuantraStatus.Unavailable, QuantraReason.Unavailable), (failure.Code, failure.Reason));
        Assert.NotEmpty(await client.ListModelsAsync(Token));
    }

    [Fact]
    [Trait(PredictorFixture.Category, PredictorFixture.Slow)]
    public async Task A_server_that_accepts_no_connection_is_UNAVAILABLE()
    {
        using var listener = new TcpListener(IPAddress.Loopback, 0);
        listener.Start();
        var hasty = new QuantraClientOptions { ConnectTimeout = TimeSpan.FromSeconds(1) };
        await using var client = new QuantraClient(new Uri($"https://{listener.LocalEndpoint}"), hasty);
        var failure = await Assert.ThrowsAsync<QuantraException>(() => client.ListModelsAsync(Token));
        Assert.Equal((QuantraStatus.Unavailable, QuantraReason.Unavailable), (failure.Code, failure.Reason));
    }

    [Fact]
    public async Task Disposing_the_client_leaves_a_borrowed_channel_open()
    {
        using var channel = GrpcChannel.ForAddress(fixture.Address);
        await new QuantraClient(channel, new QuantraClientOptions()).DisposeAsync();
        await using var second = new QuantraClient(channel, new QuantraClientOptions());
        Assert.NotEmpty(await second.ListModelsAsync(Token));
    }

    [Fact]
    public async Task A_response_beyond_the_limit_is_REQUEST_TOO_LARGE()
    {
        await using var client = new QuantraClient(fixture.Address, new QuantraClientOptions { MaxMessageBytes = 100 });
        var failure = await Assert.ThrowsAsync<QuantraException>(() => client.ListModelsAsync(Token));
        Assert.Equal(QuantraReason.RequestTooLarge, failure.Reason);
    }

    [Fact]
    public async Task A_view_can_have_another_header()
    {
        var answering = new FixedResponseInvoker(Task.FromResult<object>(new V1.ListModelsResponse()));
        await using var client = new QuantraClient(answering, new QuantraClientOptions());
        await client.WithHeader("x-request-id", "42").WithHeader("x-desk", "rates").ListModelsAsync(Token);
        await client.ListModelsAsync(Token);
        Assert.Equal(["x-request-id: 42, x-desk: rates", ""], answering.Headers);
        Assert.ThrowsAny<ArgumentException>(() => client.WithHeader("two words", "42"));
        Assert.ThrowsAny<ArgumentException>(() => client.WithHeader(null!, "42"));
        Assert.ThrowsAny<ArgumentException>(() => client.WithHeader("x-request-id", null!));
    }

    [Fact]
    public async Task The_details_of_a_status_are_the_error()
    {
        var refusal = await RefusalAsync(WithDetails("quantra"));
        var error = new QuantraError(QuantraStatus.ResourceExhausted, QuantraReason.QueueFull, "9 calls wait", refusal.Metadata);
        Assert.Equal(error, refusal.Error);
        Assert.Equal(new Dictionary<string, string> { ["have"] = "9" }, refusal.Metadata);
    }

    [Fact]
    public async Task Status_details_of_another_system_are_ignored()
    {
        var refusal = await RefusalAsync(WithDetails("elsewhere.example"));
        Assert.Equal((QuantraStatus.Unavailable, QuantraReason.Unavailable), (refusal.Code, refusal.Reason));
    }

    [Fact]
    public async Task Invalid_status_details_are_ignored()
    {
        var trailers = new Metadata { { "grpc-status-details-bin", [0xff] } };
        var refusal = await RefusalAsync(new RpcException(new Status(StatusCode.Unavailable, ""), trailers));
        Assert.Equal((QuantraStatus.Unavailable, QuantraReason.Unavailable), (refusal.Code, refusal.Reason));
    }

    [Theory]
    [InlineData("Sending message exceeds the maximum configured message size.", QuantraReason.RequestTooLarge)]
    [InlineData("SERVER: Received message larger than max (5 vs. 4)", QuantraReason.RequestTooLarge)]
    [InlineData("gRPC message exceeds maximum size 4: 5", QuantraReason.RequestTooLarge)]
    [InlineData("Concurrent RPC limit exceeded!", QuantraReason.QueueFull)]
    [InlineData("", QuantraReason.QueueFull)]
    public async Task RESOURCE_EXHAUSTED_is_QUEUE_FULL_unless_a_message_is_too_large(string detail, string reason)
    {
        var refusal = await RefusalAsync(new RpcException(new Status(StatusCode.ResourceExhausted, detail)));
        Assert.Equal((QuantraStatus.ResourceExhausted, reason), (refusal.Code, refusal.Reason));
    }

    [Theory]
    [InlineData(StatusCode.Unauthenticated, QuantraReason.Unauthenticated)]
    [InlineData(StatusCode.PermissionDenied, QuantraReason.PermissionDenied)]
    [InlineData(StatusCode.Internal, QuantraReason.Internal)]
    public async Task A_rejection_by_a_proxy_gets_the_reason_of_its_code(StatusCode code, string reason)
    {
        var refusal = await RefusalAsync(new RpcException(new Status(code, "denied")));
        Assert.Equal(((QuantraStatus)code, reason), (refusal.Code, refusal.Reason));
    }

    [Theory]
    [InlineData("The remote certificate is invalid because of errors in the certificate chain: NotTimeValid", "has expired")]
    [InlineData("An error occurred while sending the request.", "check the address")]
    public async Task A_connection_error_with_status_INTERNAL_is_UNAVAILABLE_with_advice(string detail, string expected)
    {
        var cause = new InvalidOperationException("wrapped", new HttpRequestException(detail));
        var refusal = await RefusalAsync(new RpcException(new Status(StatusCode.Internal, detail, cause)));
        Assert.Equal((QuantraStatus.Unavailable, QuantraReason.Unavailable), (refusal.Code, refusal.Reason));
        Assert.Contains(expected, refusal.Message, StringComparison.Ordinal);
    }

    [Fact]
    public async Task An_unreadable_response_is_INTERNAL()
    {
        var cause = new IOException("not a message"); // protobuf's exception is an IOException
        var refusal = await RefusalAsync(new RpcException(new Status(StatusCode.Internal, "unreadable", cause)));
        Assert.Equal((QuantraStatus.Internal, QuantraReason.Internal), (refusal.Code, refusal.Reason));
    }

    [Fact]
    public async Task A_response_with_too_few_results_is_INTERNAL()
    {
        var bars = await BarPanel.ReadCsvAsync(fixture.PathOf("bars.csv"), Token);
        var request = new PredictionRequest("small", bars.Last(100)); // few enough to be sent without describing the model first
        await using var predicting = Client(new V1.PredictResponse());
        var unpredicted = await Assert.ThrowsAsync<QuantraException>(() => predicting.PredictAsync(request, Token));
        await using var explaining = Client(new V1.ExplainResponse());
        var unexplained = await Assert.ThrowsAsync<QuantraException>(() => explaining.ExplainAsync(new ExplanationRequest(request, 5), Token));
        Assert.Equal([QuantraReason.Internal, QuantraReason.Internal], [unpredicted.Reason, unexplained.Reason]);

        static QuantraClient Client(object answer) => new(new FixedResponseInvoker(Task.FromResult(answer)), new QuantraClientOptions());
    }

    [Fact]
    public void Options_out_of_range_are_rejected()
    {
        Assert.Throws<ArgumentOutOfRangeException>(() => new QuantraClientOptions { Timeout = TimeSpan.Zero });
        Assert.Throws<ArgumentOutOfRangeException>(() => new QuantraClientOptions { Timeout = TimeSpan.MaxValue });
        Assert.Throws<ArgumentOutOfRangeException>(() => new QuantraClientOptions { MaxMessageBytes = 0 });
        Assert.Throws<ArgumentOutOfRangeException>(() => new QuantraClientOptions { MaxRequestBytes = 0 });
        Assert.Throws<ArgumentOutOfRangeException>(() => new QuantraClientOptions { MaxInFlight = 0 });
        Assert.Throws<ArgumentOutOfRangeException>(() => new QuantraClientOptions { MaxAttempts = 0 });
        Assert.Throws<ArgumentOutOfRangeException>(() => new QuantraClientOptions { MaxAttempts = 1_001 });
        Assert.Throws<ArgumentOutOfRangeException>(() => new QuantraClientOptions { GraceTime = TimeSpan.Zero });
        Assert.Throws<ArgumentOutOfRangeException>(() => new QuantraClientOptions { ConnectTimeout = TimeSpan.Zero });
        Assert.Throws<ArgumentOutOfRangeException>(() => new QuantraClientOptions { PingInterval = TimeSpan.FromSeconds(0.9) });
        Assert.Throws<ArgumentOutOfRangeException>(() => new QuantraClientOptions { PingTimeout = TimeSpan.FromDays(2) });
    }

    [Fact]
    public void Every_reason_of_Python_has_a_constant()
    {
        var names = typeof(QuantraReason).GetFields(BindingFlags.Public | BindingFlags.Static);
        Assert.Equal(fixture.Expected.Reasons.Order(), names.Select(name => (string)name.GetRawConstantValue()!).Order());
    }

    [Fact]
    public async Task A_forecast_prints_the_same_table_in_every_culture()
    {
        var bars = (await BarPanel.ReadCsvAsync(fixture.PathOf("bars.csv"), Token)).Select("AAPL");
        var forecast = await fixture.Grpc.PredictAsync(new PredictionRequest("small", bars), Token);
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

    /// <summary>A call that a proxy rejected as UNAVAILABLE, with Quantra's details of a full queue.</summary>
    private static RpcException WithDetails(string domain)
    {
        var info = new Rpc.ErrorInfo { Reason = QuantraReason.QueueFull, Domain = domain, Metadata = { ["have"] = "9" } };
        var status = new Rpc.Status { Code = (int)QuantraStatus.ResourceExhausted, Message = "9 calls wait", Details = { Any.Pack(info) } };
        var trailers = new Metadata { { "grpc-status-details-bin", status.ToByteArray() } };
        return new RpcException(new Status(StatusCode.Unavailable, ""), trailers);
    }

    private static async Task<QuantraException> RefusalAsync(RpcException failure)
    {
        await using var client = new QuantraClient(new FixedResponseInvoker(Task.FromException<object>(failure)), new QuantraClientOptions());
        return await Assert.ThrowsAsync<QuantraException>(() => client.ListModelsAsync(Token));
    }
}
