package rclc

// Placement says where received rows stand in a receiver's prompt. The zero value
// puts them before everything, system prompt included.
type Placement struct {
	// InTurn puts them inside the user's turn, before the request, between the texts
	// Before and After.
	InTurn        bool
	Before, After string
}

// Plan is a receiver's prompt for one request and the room that it leaves.
type Plan struct {
	Prompt    []int32 // ids of the prompt without the received rows
	At        int     // how many of them come before the received rows
	Allowance int     // positions kept free for the answer
	Limit     int     // positions in all
}

// Available is the number of positions left for received rows; it may be negative.
func (p Plan) Available() int { return p.Limit - len(p.Prompt) - p.Allowance }
