namespace Quantra.Client.Transport;

/// <summary>Counts how often gRPC tries a call, which it tells nobody.</summary>
internal sealed class AttemptCounter(HttpMessageHandler inner) : DelegatingHandler(inner)
{
    private static readonly AsyncLocal<Attempts?> OfThisCall = new();

    /// <summary>Begins to count the attempts of the call that this flow of execution makes next.</summary>
    /// <returns>Their number, as it grows.</returns>
    public static Attempts Begin() => OfThisCall.Value = new Attempts(0);

    /// <inheritdoc/>
    protected override Task<HttpResponseMessage> SendAsync(HttpRequestMessage request, CancellationToken cancellationToken)
    {
        OfThisCall.Value?.Add();
        return base.SendAsync(request, cancellationToken);
    }

    /// <summary>The attempts of one call.</summary>
    public sealed class Attempts(int count)
    {
        private int _count = count;

        /// <summary>So far.</summary>
        public int Count => Volatile.Read(ref _count);

        /// <summary>Counts another.</summary>
        public void Add() => Interlocked.Increment(ref _count);
    }
}
