using Grpc.Core;

namespace Quantra.Client.Transport;

/// <summary>Adds a bearer token to calls.</summary>
internal sealed class BearerToken
{
    /// <summary>Environment variable of the token, if the options have none.</summary>
    private const string Variable = "QUANTRA_TOKEN";

    private readonly Func<CancellationToken, ValueTask<string?>> _getToken;
    private readonly string? _plainTarget;

    private BearerToken(Func<CancellationToken, ValueTask<string?>> getToken, string? plainTarget) => (_getToken, _plainTarget) = (getToken, plainTarget);

    /// <summary>No token, for a channel of the caller with its own credentials.</summary>
    public static BearerToken None { get; } = new(_ => default, null);

    /// <summary>The token of a client with its own channel.</summary>
    public static BearerToken Create(ServerAddress address, QuantraClientOptions options)
    {
        var variable = Environment.GetEnvironmentVariable(Variable);
        return new(options.Token ?? (_ => new ValueTask<string?>(variable)), address.IsPrivate ? null : address.Text);
    }

    /// <summary>Adds the token to the headers of a call.</summary>
    /// <exception cref="QuantraException">CONFIGURATION_INVALID: the connection is not encrypted, or the token is not a valid header value.</exception>
    public async ValueTask AddToAsync(Metadata headers, CancellationToken cancellationToken)
    {
        var token = await _getToken(cancellationToken).ConfigureAwait(false);
        if (string.IsNullOrEmpty(token))
            return;
        if (token.AsSpan().ContainsAnyExceptInRange('!', '~'))
            throw Refusal($"the token has a character that headers do not allow; check Token or {Variable} for blanks and line ends");
        if (_plainTarget is not null)
        {
            throw Refusal(
                $"the token would be sent to {_plainTarget} unencrypted; use https://, or send no token: unset {Variable}, or set a Token that "
                + "returns null");
        }

        headers.Add("authorization", $"Bearer {token}");
    }

    private static QuantraException Refusal(string message) =>
        new QuantraError(QuantraStatus.InvalidArgument, QuantraReason.ConfigurationInvalid, message).ToException();
}
